"""Writes the SQL by which a relation's rows are written as the caller. Pure: values in, statements out.

docs/design/writing-as-the-caller.md says why it is done by doors.
"""

from collections.abc import Iterator, Sequence
from typing import LiteralString

from psycopg import sql

from frostline import sqlfiles
from frostline.model.registration import HeapFacts
from frostline.model.tables import Column, Table
from frostline.relation import names, objects
from frostline.relation.names import AND, COMMA
from frostline.relation.objects import DatabaseObject
from frostline.relation.views import overriding

HELPERS = ("missed", "may_write_cold", "claim", "unclaim")
_NONE = sql.SQL("null::{}")
_PLACE = (("partition", "oid"), ("place", "tid"), ("secret", "uuid"))
_SECRET = (("secret", "uuid"),)


def _template(name: str) -> sql.SQL:
    return sql.SQL(sqlfiles.load(__package__ or "", "writes")[name])


class Writes:
    """What one table is written through."""

    def __init__(self, table: Table, facts: HeapFacts, body: sql.SQL) -> None:
        self.table = table
        self.body = body
        self.heap = names.identifier(table.heap)
        self.inner = names.inner(table)
        self.relation = names.identifier(table.relation)
        self.numbers = {column.name: number for number, column in enumerate(table.columns, start=1)}
        self.written = [column.name for column in table.columns if not column.generated]
        self.always = sorted(column.name for column in facts.columns if column.identity == "a")
        self.generated = [column for column in table.columns if column.generated]
        self.overriding = overriding(facts)
        self.has_row_security = facts.row_security
        message = f"could not serialize access to {table.relation.table} due to concurrent update"
        self.refusal = {"concurrent": sql.Literal(message), "run_again": sql.Literal("Run the transaction again.")}

    def objects(self) -> Iterator[DatabaseObject]:
        """Doors, functions and triggers. The inner view and the overlay must be there."""
        yield from self.doors()
        yield from self._helpers()
        # Postgres refuses COPY FROM on a table with row security; without this trigger it refuses it here too.
        copies = not self.has_row_security
        copy = names.function(self.table, "copy")
        yield objects.function(copy, self._copy_function(), is_wanted=copies)
        copy_trigger = _template("copy_trigger").format(relation=self.relation, function=copy)
        yield objects.triggers(self.relation, ["frostline_copy"], copy_trigger, is_wanted=copies)
        yield objects.function(names.function(self.table, "update"), self._update_function())
        yield self._writing_triggers("update")
        yield objects.function(names.function(self.table, "delete"), self._delete_function())
        yield self._writing_triggers("delete")

    def doors(self) -> Iterator[DatabaseObject]:
        """The views through which the heap is written. Others cannot be put in their place when columns were added."""
        columns, key = list(self.numbers), list(self.table.key)
        yield from self._door("update hot", "update_rule", columns, key, _PLACE)
        yield from self._door("update cold", "update_rule", columns, columns, _SECRET)
        yield from self._door("delete hot", "delete_rule", (), key, _PLACE)
        yield from self._door("delete cold", "delete_rule", (), columns, _SECRET)
        yield from self._door("insert", "insert_rule", columns, (), _SECRET)

    def _door(
        self, verb: str, rule: str, new: Sequence[str], old: Sequence[str], more: Sequence[tuple[str, str]]
    ) -> Iterator[DatabaseObject]:
        door = names.door(self.table, verb)
        others = (names.trusted(f"null::pg_catalog.{kind} as {name}") for name, kind in more)
        rest = [*(self._typed("o", name) for name in old), *others]
        nothing = COMMA.join([*(self._typed("n", name) for name in new), *rest])
        right = sql.SQL("insert" if verb == "insert" else "update")
        yield objects.view(door, _template("door").format(door=door, right=right, nothing=nothing))
        assigned = [name for name in self.written if name not in self.always]
        pairs = ((sql.Identifier(name), self._number("new.n", name)) for name in assigned)
        written = _template(rule).format(
            door=door,
            heap=self.heap,
            assignments=COMMA.join(sql.SQL("{} = {}").format(name, value) for name, value in pairs),
            row_is_meant=self._is_at_place() if more is _PLACE else self._is_same(),
            written=names.columns(None, self.written),
            overriding=self.overriding,
            new_written=COMMA.join(self._number("new.n", name) for name in self.written),
            table_id=sql.Literal(self.table.id),
            returned=COMMA.join([*(names.column("h", name) for name in new), *rest]),
        )
        yield objects.rule(door, "frostline_write", written)

    def _typed(self, prefix: str, name: str) -> sql.Composed:
        kind = names.trusted(self.table.column(name).pg_type.formatted)
        return sql.SQL("{} as {}").format(_NONE.format(kind), self._number(prefix, name))

    def _number(self, prefix: str, name: str) -> sql.SQL:
        return names.trusted(f"{prefix}{self.numbers[name]}")

    def _key_is_new_old(self) -> list[sql.Composed]:
        return [self._key_column_is_new_old(name) for name in self.table.key]

    def _key_column_is_new_old(self, name: str) -> sql.Composed:
        column, value = names.column("h", name), self._number("new.o", name)
        if name == self.table.tier_key:
            return sql.SQL("{} = {}").format(column, value)  # by which Postgres prunes
        return sql.SQL("{} = case when {} then {} end").format(column, self._secret_is_right(), value)

    def _secret_is_right(self) -> sql.Composed:
        return _template("secret_is_right").format(table_id=sql.Literal(self.table.id))

    def _only_with_secret(self, condition: sql.Composable) -> sql.Composed:
        return sql.SQL("case when {} then {} else false end").format(self._secret_is_right(), condition)

    def _is_at_place(self) -> sql.Composed:
        # IS NOT DISTINCT FROM, so that Postgres looks by the key and tests the place: a scan by place is not
        # tested again when somebody has changed the row meanwhile.
        place = sql.SQL("h.tableoid = new.partition and h.ctid is not distinct from new.place")
        return AND.join([*self._key_is_new_old(), self._only_with_secret(place)])

    def _is_same(self) -> sql.Composed:
        rest = [column for column in self.table.columns if column.name not in self.table.key]
        left = COMMA.join(_comparable(names.column("h", column.name), column) for column in rest)
        right = COMMA.join(_comparable(self._number("new.o", column.name), column) for column in rest)
        same = sql.SQL("row({}) is not distinct from row({})").format(left, right) if rest else sql.SQL("true")
        return AND.join([*self._key_is_new_old(), self._only_with_secret(same)])

    def _helpers(self) -> Iterator[DatabaseObject]:
        parts = {
            "inner": self.inner,
            "heap": self.heap,
            "overlay": names.overlay(self.table),
            "body": self.body,
            "table_id": sql.Literal(self.table.id),
            "require_secret": self._require_secret(),
            "heap_key_is_old": names.equal("h", "frostline_old", self.table.key),
            "mark_key_is_old": names.equal("m", "frostline_old", self.table.key),
            "marked": names.columns(None, names.marked(self.table)),
            "old_marked": names.columns("frostline_old", names.marked(self.table)),
            "seam_is_current": seam_is_current(self.table),
            "may_write_cold": names.helper(self.table, "may_write_cold"),
            **self.refusal,
        }
        for verb in HELPERS:
            function = names.helper(self.table, verb)
            yield objects.function(function, _template(f"{verb}_function").format(function=function, **parts))

    def _require_secret(self) -> sql.Composed:
        message = f"only statements on {self.table.relation} call this function"
        return _template("require_secret").format(
            table_id=sql.Literal(self.table.id), only_relation=sql.Literal(message)
        )

    def _writing_triggers(self, verb: str) -> DatabaseObject:
        function = names.function(self.table, verb)
        create = _template(f"{verb}_trigger").format(inner=self.inner, function=function)
        return objects.triggers(self.inner, [f"frostline_{verb}", f"frostline_z_settle_{verb}"], create)

    def _copy_function(self) -> sql.Composed:
        return _template("copy_function").format(
            function=names.function(self.table, "copy"),
            body=self.body,
            relation=self.relation,
            relation_name=sql.Literal(self.relation.as_string()),
            written=names.columns(None, self.written),
            written_names=sql.SQL("array[{}]::pg_catalog.text[]").format(COMMA.join(map(sql.Literal, self.written))),
            new_written=names.columns("new", self.written),
        )

    def _update_function(self) -> sql.Composed:
        columns = list(self.numbers)
        returned = [
            *(self._number("n", column.name) for column in self.table.columns if not column.is_later),
            sql.SQL(
                "'heap'::pg_catalog.text, null::pg_catalog.int8, null::pg_catalog.uuid, null::pg_catalog.oid, "
                "null::pg_catalog.tid"
            ),
            *(self._number("n", column.name) for column in self.table.columns if column.is_later),
        ]
        return _template("update_function").format(
            function=names.function(self.table, "update"),
            guards=self._guards(),
            hot_door=names.door(self.table, "update hot"),
            cold_door=names.door(self.table, "update cold"),
            insert_door=names.door(self.table, "insert"),
            new_values=self._assigned("n", "new", columns),
            numbers=COMMA.join(self._number("n", name) for name in columns),
            new_row=names.columns("new", columns),
            returned=COMMA.join(returned),
            row_is_allowed=self._row_is_allowed(),
            **self._common(),
        )

    def _row_is_allowed(self) -> sql.Composable:
        if not self.has_row_security:
            return sql.SQL("")
        values = COMMA.join(self._number("frostline_row.n", name) for name in self.numbers)
        return _template("row_is_allowed").format(
            heap_name=sql.Literal(str(self.table.heap)),
            may_become=sql.SQL("{}({})").format(names.helper(self.table, "may_become"), values),
            relation_name=sql.Literal(self.table.relation.table),
        )

    def _delete_function(self) -> sql.Composed:
        return _template("delete_function").format(
            function=names.function(self.table, "delete"),
            hot_door=names.door(self.table, "delete hot"),
            cold_door=names.door(self.table, "delete cold"),
            **self._common(),
        )

    def _common(self) -> dict[str, sql.Composable]:
        place = "partition = old.frostline_partition, place = old.frostline_place, secret = old.frostline_secret"
        return {
            "body": self.body,
            "old_key": self._assigned("o", "old", self.table.key),
            "old_values": self._assigned("o", "old", list(self.numbers)),
            "old_place": names.trusted(place),
            **{verb: names.helper(self.table, verb) for verb in HELPERS},
        }

    def _assigned(self, prefix: str, row: LiteralString, columns: Sequence[str]) -> sql.Composed:
        pairs = ((self._number(prefix, name), names.column(row, name)) for name in columns)
        return COMMA.join(sql.SQL("{} = {}").format(*pair) for pair in pairs)

    def _guards(self) -> sql.Composable:
        """What a plain table refuses: new values for columns that Postgres alone computes."""
        name, parts = self.table.relation.table, list[sql.Composed]()
        for column in self.generated:
            message, hint = (
                f"column {column.name} of {name} can only be updated to DEFAULT",
                "It is a generated column.",
            )
            parts.append(self._guard([column], message, hint))
        if self.always:
            message = f"column {', '.join(self.always)} of {name} can only be updated to DEFAULT"
            columns = list(map(self.table.column, self.always))
            parts.append(self._guard(columns, message, "It is GENERATED ALWAYS: leave it out of the UPDATE."))
        return sql.SQL("\n    ").join(parts)

    def _guard(self, columns: Sequence[Column], message: str, hint: str) -> sql.Composed:
        changed = sql.SQL(" or ").join(_changed(column) for column in columns)
        return _template("identity_guard").format(changed=changed, message=sql.Literal(message), hint=sql.Literal(hint))


def _changed(column: Column) -> sql.Composed:
    """By their text, with an operator that no search_path replaces. DEFAULT for a generated column arrives as NULL."""
    new, old = names.column("new", column.name), names.column("old", column.name)
    same = sql.SQL("coalesce({}::pg_catalog.text operator(pg_catalog.=) {}::pg_catalog.text, false)").format(new, old)
    return sql.SQL("({} is not null and not {})").format(new, same)


def _comparable(value: sql.Composable, column: Column) -> sql.Composable:
    """Text-carried types compare by their text: some have no equality, and some call different values equal."""
    return sql.SQL("{}::text").format(value) if column.encoding.as_text else value


def seam_is_current(table: Table) -> sql.Composed:
    """40001 where a transaction with one snapshot for all its statements cannot see that the seam has moved."""
    return objects.template("seam_is_current").format(table_id=sql.Literal(table.id))
