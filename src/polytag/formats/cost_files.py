"""Files with the costs of mistakes per label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polytag.errors import DataError
from polytag.formats.document import BadLine
from polytag.formats.parsers import json_records, opened, table_records
from polytag.formats.streams import stem_and_suffix

_KEYS = ("false_positive", "false_negative")
_EXAMPLE = '{"name": "...", "false_positive": 1, "false_negative": 10}'


def read_costs(path: str | Path) -> dict[str, list[Any]]:
    """Per label, the costs of a false positive and a false negative, not yet checked; an empty cost is 1.

    The file is JSON lines, CSV or TSV with ``name``, ``false_positive`` and ``false_negative``.
    """
    where, suffix = str(path), stem_and_suffix(path)[1]
    costs: dict[str, list[Any]] = {}
    with opened(where) as stream:
        tables = {".csv": ",", ".tsv": "\t"}
        records = table_records(stream, tables[suffix], where) if suffix in tables else json_records(stream, _EXAMPLE)
        for line, record in records:
            if isinstance(record, BadLine):
                raise DataError(f"{where}, line {line}: {record}")
            name = record.get("name")
            if not isinstance(name, str) or not name or name in costs:
                raise DataError(f"{where}, line {line}: no new 'name' of a label; write one like {_EXAMPLE} per line")
            costs[name] = [1 if record.get(key) in (None, "") else record[key] for key in _KEYS]
    if not costs:
        raise DataError(f"{where}: there are no costs; write lines like {_EXAMPLE}")
    return costs
