"""Commands on a database of corrections: export, backup, restore, forget."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Integer, Table, func, insert, select, text

from polytag.corpus import Corpus
from polytag.errors import DataError
from polytag.formats.document_files import write_documents
from polytag.formats.streams import reading, writing
from polytag.server.corrections.agreement import corpus_of, documents_of_rows
from polytag.server.corrections.correction_store import CorrectionStore
from polytag.server.corrections.correction_tables import METADATA
from polytag.server.corrections.database import open_database

_FORMAT = 1


def corrected(url: str, *, disputed: bool = False) -> Corpus:
    """The corrected texts of a database as a corpus."""
    return corpus_of(CorrectionStore(open_database(url)).standing(), disputed=disputed)


def export_corpus(url: str, out: Path, *, disputed: bool = False) -> int:
    """Write the corrected texts as a corpus; returns their number."""
    rows = CorrectionStore(open_database(url)).standing()
    return write_documents(out, documents_of_rows(rows, disputed=disputed), "jsonl")


def backup(url: str, out: Path) -> int:
    """Write all rows of all tables as JSON lines, in one view of the database; returns their number."""
    engine, count = open_database(url), 0
    with _one_view(engine) as connection, writing(out) as file:
        file.write(json.dumps({"polytag_corrections": _FORMAT}) + "\n")
        for table in METADATA.sorted_tables:
            for row in connection.execute(select(table)).mappings():
                file.write(json.dumps({"table": table.name, "row": dict(row)}, ensure_ascii=False) + "\n")
                count += 1
    return count


def _one_view(engine: Engine) -> Connection:
    level = "REPEATABLE READ" if engine.dialect.name == "postgresql" else "SERIALIZABLE"
    return engine.connect().execution_options(isolation_level=level)


def restore(url: str, source: Path) -> int:
    """Read a backup into an empty database, all or nothing; returns the number of rows."""
    engine, count = open_database(url), 0
    tables = {table.name: table for table in METADATA.sorted_tables}
    with engine.begin() as connection:
        if any(connection.execute(select(func.count()).select_from(table)).scalar_one() for table in tables.values()):
            raise DataError("the database has corrections; restore into an empty one")
        for table, row in _rows(source, tables):
            connection.execute(insert(table).values(row))
            count += 1
        if engine.dialect.name == "postgresql":
            for table in tables.values():
                _continue_numbers(connection, table)
    return count


def _rows(source: Path, tables: dict[str, Table]) -> Iterator[tuple[Table, dict[str, Any]]]:
    with reading(source) as file:
        for number, line in enumerate(file, 1):
            try:
                found = json.loads(line)
                if number == 1:
                    if found["polytag_corrections"] != _FORMAT:
                        raise ValueError
                    continue
                table = tables[found["table"]]
                yield table, {column.name: found["row"][column.name] for column in table.columns}
            except (ValueError, KeyError, TypeError):
                raise DataError(f"{source}, line {number}: not a backup of corrections, or a damaged one") from None


def _continue_numbers(connection: Connection, table: Table) -> None:
    """Let PostgreSQL number new rows after the restored ones."""
    if "id" in table.columns and isinstance(table.columns["id"].type, Integer):
        most = f"(SELECT COALESCE(MAX(id), 0) + 1 FROM {table.name})"
        connection.execute(text(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), {most}, false)"))


def forget(url: str, user: str) -> dict[str, int]:
    """Delete a person's data."""
    return CorrectionStore(open_database(url)).forget(user, "command line")
