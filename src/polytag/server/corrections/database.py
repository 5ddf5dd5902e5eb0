"""The database of corrections: SQLite in WAL mode, or PostgreSQL; its layout is brought up to date when it is opened."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from polytag.errors import ConfigError, DataError, brief

_MIGRATIONS = Path(__file__).parent / "migrations"
_WAIT_S = 30  # how long a writer waits for another one


def open_database(url: str) -> Engine:
    """Connect, and bring the tables up to date; a plain path is a SQLite file."""
    engine = _engine(url)
    try:
        _upgrade(engine)
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).split("\n")[0]
        raise DataError(f"the database of corrections {shown(url)} cannot be opened: {reason}") from None
    return engine


def _engine(url: str) -> Engine:
    try:
        place = make_url(url if "://" in url else f"sqlite:///{url}")
        if place.drivername in ("postgres", "postgresql"):
            place = place.set(drivername="postgresql+psycopg")
        engine = create_engine(place, pool_pre_ping=place.get_backend_name() != "sqlite")
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        hint = "write sqlite:///corrections.db or postgresql://user@host/name; PostgreSQL needs pip install 'psycopg[binary]'"
        raise ConfigError(f"{shown(url)} is not a database for corrections ({brief(str(error))}); {hint}") from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _durable)
    elif engine.dialect.name != "postgresql":
        raise ConfigError(f"{engine.dialect.name} databases are not supported; use sqlite:// or postgresql://")
    return engine


def _durable(connection: Any, _: Any) -> None:
    """Readers do not wait for writers; a commit is on disk when it returns."""
    for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={_WAIT_S * 1000}"):
        connection.execute(f"PRAGMA {setting}")


def _upgrade(engine: Engine) -> None:
    """Run the steps that the database has not seen; two processes that start together do not do it twice."""
    logging.getLogger("alembic").setLevel(logging.WARNING)  # its plugins announce themselves when they are imported
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7048239)")
        else:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def shown(url: str) -> str:
    """A URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True) if "://" in url else url
    except ArgumentError:
        return brief(url)
