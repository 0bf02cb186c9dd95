-- Statements on the relation that only a table can have, as migration tools send them: Postgres' own error does not know of the heap. It looks
-- at what it was given when event triggers have fired already, so this comes first. docs/design/schema-changes.md.

-- name: heap_behind
-- The heap of the table whose relation it is, quoted; null for what is no relation. For everybody: it says no more than the relation's text.
create or replace function frostline_write.heap_behind(relation regclass) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select format('%I.%I', t.schema_name, t.heap_name)
      from frostline.managed_table t
      join pg_class v on v.oid = to_regclass(format('%I.%I', t.schema_name, coalesce(t.relation_name, t.table_name))) and v.relkind = 'v'
     where t.mode = 'tiered' and v.oid = relation
$$;
grant execute on function frostline_write.heap_behind(regclass) to public;

-- name: said_of_a_table
-- What a statement says before the name, the name, and what comes behind, where Postgres refuses such a statement for a view; null for all
-- others, and for what is not known here.
create or replace function frostline_write.said_of_a_table(statement text) returns text[]
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    word text := '(?:"(?:[^"]|"")+"|[a-z_][\w$]*)';
    named text := format('(%s(?:\s*\.\s*%1$s)?)(?![\w$"]|\s*\.)(.*)$', word);
    bare text := regexp_replace(statement, '^(?:\s+|--[^\n]*\n)+', '');
    said text[] := regexp_match(bare, '^(alter\s+table\s+(?:if\s+exists\s+)?(?:only\s+)?)' || named, 'i');
begin
    if said is not null then
        return case when said[3] ~* format('^\s*(?:add|drop|validate\s+constraint|rename\s+constraint|enable|disable|force|no\s+force|replica\s+identity|'
                                           'alter\s+(?:column\s+)?%s\s+(?:type|set\s+data\s+type|(?:set|drop)\s+not\s+null|set\s+(?:statistics|storage|'
                                           'compression|expression|generated)|add\s+generated|drop\s+(?:identity|expression)))\M', word) then said end;
    end if;
    said := coalesce(
        regexp_match(bare, format('^(create\s+(?:unique\s+)?index(?:\s+concurrently)?(?:\s+if\s+not\s+exists)?(?:\s+%s)?\s+on\s+(?:only\s+)?)', word) || named, 'i'),
        regexp_match(bare, '^(create\s+statistics\s.*\sfrom\s+)' || named, 'i'),
        regexp_match(bare, format('^(create\s+policy\s+%s\s+on\s+)', word) || named, 'i'),
        regexp_match(bare, '^(comment\s+on\s+table\s+)' || named, 'i'),
        regexp_match(bare, format('^(comment\s+on\s+(?:constraint|trigger|policy)\s+%s\s+on\s+)', word) || named, 'i'));
    if said is null then
        said := regexp_match(bare, format('^(create\s+(?:or\s+replace\s+)?(?:constraint\s+)?trigger\s+%s\s+(?:before|after)\s+[\w\s,"$]+\son\s+)', word) || named, 'i');
        said := case when said[3] ~* '\mfor\s+(?:each\s+)?row\M' then said end;
    end if;
    return said;
end
$$;
grant execute on function frostline_write.said_of_a_table(text) to public;

-- name: heap_named_function
-- Of what the client has sent, statement by statement; not of what is in a function or DO, which may mean either. Runs as the caller, and
-- finds the name as the statement would; so no operator is left to the caller's search path.
create or replace function frostline_write.name_the_heap() returns event_trigger
language plpgsql as $body$
declare
    statement text;
    said text[];
    heap text;
begin
    for statement in
        select s from pg_catalog.regexp_split_to_table(pg_catalog.current_query(), ';') as s
         where pg_catalog.regexp_match(pg_catalog.current_query(), '\$\w*\$|^\s*do\M', 'i') is null
    loop
        said := frostline_write.said_of_a_table(statement);
        continue when said is null;
        heap := frostline_write.heap_behind(pg_catalog.to_regclass(said[2]));
        continue when heap is null;
        raise wrong_object_type using
            message = pg_catalog.format('%s is the relation of a managed table, which is a view: this is for its heap, %s', said[2], heap),
            hint = pg_catalog.concat(said[1], heap, pg_catalog.rtrim(said[3]));
    end loop;
end
$body$;
revoke execute on function frostline_write.name_the_heap() from public
