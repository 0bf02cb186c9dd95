"""Puts Frostline into a database: the embedded one, or one of your own."""

from pathlib import Path
from typing import Any

from pydantic import SecretStr

from frostline.catalog import migrations
from frostline.catalog.connect import Connection, connect
from frostline.embedded.postgres import new_password
from frostline.errors import UsageError
from frostline.lake import objectstore
from frostline.relation import foreign_server, guard, renewal, rowsecurity
from frostline.settings import FILE_NAME, Settings, write_file


def install(settings: Settings) -> dict[str, Any]:
    """Bring the catalog and the foreign server up to date and say what changed. Idempotent."""
    with connect(settings.dsn, purpose="init") as connection:
        applied = migrations.apply(connection)
        changed = foreign_server.ensure(
            connection,
            host=settings.lake_host,
            port=settings.lake_port,
            user=settings.lake_user,
            password=lake_password(settings, connection),
            passfile=settings.lake_passfile,
        )
        guarded = guard.ensure(connection)
        renewed = [*renewal.renew(connection), *rowsecurity.follow(connection)]
    return {
        "changed": bool(applied) or changed or bool(renewed),
        "migrations": ", ".join(applied) or None,
        "lake_server": changed,
        "partition_guard": guarded,
    }


def with_home_if_made(home: Path | None) -> Path | None:
    """The home, if its settings file is there to be read."""
    return home if home and (home / FILE_NAME).exists() else None


def install_with_home(settings: Settings, home: Path | None) -> dict[str, Any]:
    """Install, and write the settings into the home if one is named and has none. Refuses a wrong warehouse first."""
    from frostline.lake.paths import warehouse_location  # noqa: PLC0415  (Iceberg is slow to load)

    place, given = warehouse_location(settings.warehouse), _absolute(settings.warehouse)
    settings = settings.model_copy(update={"warehouse": place if objectstore.holds(place) else given})
    if home and not with_home_if_made(home):
        settings = _with_password(settings)
        result = install(settings)
        _write(home, settings)
        return result
    return install(settings)


def lake_password(settings: Settings, connection: Connection) -> str:
    """The lake server's password: the one that is set, else the one that Postgres uses already, else a new one."""
    if settings.lake_password:
        return settings.lake_password.get_secret_value()
    if settings.lake_passfile:
        raise UsageError("lake_passfile is set, but lake_password is not", hint="set it to the password in that file")
    return foreign_server.stored_password(connection) or new_password()


def _with_password(settings: Settings) -> Settings:
    with connect(settings.dsn, purpose="init") as connection:
        return settings.model_copy(update={"lake_password": SecretStr(lake_password(settings, connection))})


def _write(home: Path, settings: Settings) -> None:
    assert settings.lake_password
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot use {str(home)!r} as home: {error.strerror}", hint="name another --home") from None
    values = {
        "dsn": settings.dsn,
        "warehouse": settings.warehouse,
        "lake_host": settings.lake_host,
        "lake_port": settings.lake_port,
        "lake_user": settings.lake_user,
        "lake_password": settings.lake_password.get_secret_value(),
    }
    if settings.lake_passfile:
        values["lake_passfile"] = settings.lake_passfile
    write_file(home / FILE_NAME, values | _object_store(settings))


def _object_store(settings: Settings) -> dict[str, str | int]:
    """Where the object store is. The keys stay where they are: they may change, and a file would keep the old ones."""
    if not objectstore.holds(settings.warehouse):
        return {}
    chosen = {"s3_region": settings.s3_region, "s3_endpoint": settings.s3_endpoint}
    found: dict[str, str | int] = {key: value for key, value in chosen.items() if value}
    return found if settings.s3_path_style is None else found | {"s3_path_style": settings.s3_path_style}


def _absolute(warehouse: str) -> str:
    return warehouse if "://" in warehouse else str(Path(warehouse).expanduser().absolute())
