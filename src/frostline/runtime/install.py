"""Puts Frostline into a database: the embedded one, or one of your own."""

from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from frostline.catalog import migrations
from frostline.catalog.connect import Connection, connect
from frostline.errors import UnavailableError, UsageError
from frostline.lake import objectstore
from frostline.relation import constraints, following, foreign_server, guard, holding, objects, renewal, rowsecurity
from frostline.runtime.postgres import new_password
from frostline.settings import FILE_NAME, Settings, read_file, write_file


def install(settings: Settings, *, new_warehouse: bool = False) -> dict[str, Any]:
    """Bring the catalog and the foreign server up to date, claim the warehouse, and say what changed. Idempotent."""
    from frostline.lake import claim  # noqa: PLC0415  (Iceberg is slow to load)

    settings.refuse_node()
    with connect(settings.dsn, purpose="init") as connection:
        applied = migrations.apply(connection)
        marked = claim.claim(connection, settings.warehouse, anew=new_warehouse)
        done = _install_rest(connection, settings)
    changed = bool(applied) or marked or done.pop("changed")
    return {"changed": changed, "migrations": ", ".join(applied) or None, "warehouse": marked, **done}


def install_and_find_lake(settings: Settings) -> UnavailableError | None:
    """Install, and say why the lake cannot be used, if it cannot: hot rows do not need it.

    A database that has nothing in a warehouse yet must get one first.
    """
    from frostline.lake import claim  # noqa: PLC0415  (as above)

    away = None
    with connect(settings.dsn, purpose="init") as connection:
        migrations.apply(connection)
        try:
            claim.claim(connection, settings.warehouse)
        except UnavailableError as error:
            if not claim.is_established(connection):
                raise
            away = error
        _install_rest(connection, settings)
    return away


def _install_rest(connection: Connection, settings: Settings) -> dict[str, Any]:
    changed = foreign_server.ensure(
        connection,
        host=settings.lake_host,
        port=settings.lake_port,
        user=settings.lake_user,
        password=lake_password(settings, connection),
        passfile=settings.lake_passfile,
    )
    objects.ensure_generator(connection)
    guarded = guard.ensure(connection)
    renewed = [*renewal.renew(connection), *rowsecurity.follow(connection), *following.follow_all(connection)]
    renewed += holding.follow(connection)
    constraints.record_all(connection)
    return {"changed": changed or bool(renewed), "lake_server": changed, "partition_guard": guarded}


def with_home_if_made(home: Path | None) -> Path | None:
    """The home, if its settings file is there to be read."""
    return home if home and (home / FILE_NAME).exists() else None


def install_with_home(settings: Settings, home: Path | None, *, new_warehouse: bool = False) -> dict[str, Any]:
    """Install, and write the settings into the home if one is named and has none. Refuses a wrong warehouse first.

    A home that has settings keeps them; only a new warehouse is written there.
    """
    from frostline.lake.paths import warehouse_location  # noqa: PLC0415  (Iceberg is slow to load)

    place, given = warehouse_location(settings.warehouse), _absolute(settings.warehouse)
    settings = settings.model_copy(update={"warehouse": place if objectstore.holds(place) else given})
    if home and with_home_if_made(home):
        _refuse_others(settings, home, new_warehouse=new_warehouse)
        result = install(settings, new_warehouse=new_warehouse)
        _move(home, settings)
        return result
    if home:
        with connect(settings.dsn, purpose="init") as connection:
            password = SecretStr(lake_password(settings, connection))
        settings = settings.model_copy(update={"lake_password": password})
    result = install(settings, new_warehouse=new_warehouse)
    if home:
        write_home(home, settings)
    return result


def _refuse_others(settings: Settings, home: Path, *, new_warehouse: bool) -> None:
    """UsageError when the settings name another database or warehouse than the home: it would be used only once."""
    from frostline.lake.paths import warehouse_location  # noqa: PLC0415  (as above)

    file = home / FILE_NAME
    has = read_file(file)
    if "dsn" in has and conninfo_to_dict(has["dsn"]) != conninfo_to_dict(settings.dsn):
        hint = f"correct dsn in {file}, or name another --home"
        raise UsageError(f"{str(file)!r} names another database", hint=hint)
    if "warehouse" not in has or new_warehouse:
        return
    old, new = warehouse_location(has["warehouse"]), warehouse_location(settings.warehouse)
    if old != new:
        hint = f"leave --warehouse out; or, to use another one from now on: --warehouse {new} --new-warehouse"
        raise UsageError(f"this home has its warehouse at {old}, not at {new}", hint=hint)


def _move(home: Path, settings: Settings) -> None:
    """Write a new warehouse into the home's settings."""
    from frostline.lake.paths import warehouse_location  # noqa: PLC0415  (as above)

    has = read_file(home / FILE_NAME)
    if "warehouse" in has and warehouse_location(has["warehouse"]) != warehouse_location(settings.warehouse):
        write_file(home / FILE_NAME, {**has, "warehouse": settings.warehouse})


def lake_password(settings: Settings, connection: Connection) -> str:
    """The lake server's password: the one that is set, else the one that Postgres uses already, else a new one."""
    if settings.lake_password:
        return settings.lake_password.get_secret_value()
    if settings.lake_passfile:
        raise UsageError("lake_passfile is set, but lake_password is not", hint="set it to the password in that file")
    return foreign_server.stored_password(connection) or new_password()


def write_home(home: Path, settings: Settings) -> None:
    """Write the settings that the other commands need; others that are there stay. The password must be among them."""
    assert settings.lake_password
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot use {str(home)!r} as home: {error.strerror}", hint="name another --home") from None
    values: dict[str, str | int] = {
        "dsn": settings.dsn,
        "warehouse": settings.warehouse,
        "lake_host": settings.lake_host,
        "lake_port": settings.lake_port,
        "lake_user": settings.lake_user,
        "lake_password": settings.lake_password.get_secret_value(),
    }
    for key in ("lake_passfile", "catalog_dsn", "catalog_warehouse", "catalog_token_file"):
        if text := getattr(settings, key):
            values[key] = text
    has = read_file(home / FILE_NAME) if with_home_if_made(home) else {}
    write_file(home / FILE_NAME, has | values | _object_store(settings))


def _object_store(settings: Settings) -> dict[str, str | int]:
    """Where the object store is. The keys stay where they are: they may change, and a file would keep the old ones."""
    if not objectstore.holds(settings.warehouse):
        return {}
    chosen = {"s3_region": settings.s3_region, "s3_endpoint": settings.s3_endpoint}
    written: dict[str, str | int] = {key: value for key, value in chosen.items() if value}
    return written if settings.s3_path_style is None else written | {"s3_path_style": settings.s3_path_style}


def _absolute(warehouse: str) -> str:
    return warehouse if "://" in warehouse else str(Path(warehouse).expanduser().absolute())
