"""Exports of annotation tools: Label Studio (a JSON array of tasks) and doccano (JSON lines)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from polytag.errors import DataError, brief
from polytag.formats.document import UNKNOWN, WEIGHT, BadLine, Document, label_names
from polytag.formats.parsers import Records, json_records

log = logging.getLogger(__name__)
LABELS = "labels"  # the key of a record with the labels of a task
_CONTROL, _OBJECT = "labels", "text"  # names of the tags in the labelling interface that written tasks are for
_DOCCANO = ("label", "labels", "cats")


# -- Label Studio ------------------------------------------------------------------------------------------------------


def task_records(stream: BinaryIO, control: str | None, where: str, need_labels: bool) -> Records:
    """The tasks of a Label Studio export as records: the keys of ``data``, the labels, and the labels that annotators dispute.

    A label that all annotators of a task chose is true; one that only some of them chose is unknown. Tasks that nobody annotated
    are skipped. ``control`` is the name of the tag with the choices, needed if there are several.
    """
    tasks = _tasks(stream, where)
    chosen = _control(tasks, control, where) if need_labels else None
    skipped = 0
    for number, task in enumerate(tasks, start=1):
        try:
            record = _data_of(task)
            if need_labels:
                judged = _judgements(task, chosen)
                if not judged:
                    skipped += 1
                    continue
                agreed = set(judged[0]).intersection(*judged)
                disputed = sorted({name for names in judged for name in names} - agreed)
                record[LABELS] = [name for name in judged[0] if name in agreed]
                known = record.get(UNKNOWN)
                record[UNKNOWN] = [*disputed, *(label_names(known) if isinstance(known, list) else ())]
            yield number, record
        except BadLine as bad:
            yield number, bad
    if skipped:
        log.warning("%s: skipped %d tasks that nobody annotated", where, skipped)


def _tasks(stream: BinaryIO, where: str) -> list[Any]:
    try:
        tasks = json.loads(stream.read().decode("utf-8-sig"))
        whole = json.dumps(tasks, ensure_ascii=False).encode("utf-16", "surrogatepass")
        tasks = json.loads(whole.decode("utf-16", "replace"))  # a lone surrogate cannot be written again: replace it
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON that can be read ({error}); export the project as JSON") from None
    if not isinstance(tasks, list):
        raise DataError(f"{where}: not a list of tasks; export the project as JSON, not as JSON-MIN or CSV")
    return tasks


def _data_of(task: Any) -> dict[str, Any]:
    if not isinstance(task, dict) or not isinstance(task.get("data"), dict):
        raise BadLine("not a task of Label Studio, as there is no 'data'; export the project as JSON")
    return {"id": task.get("id"), **task["data"]}


def _annotations(task: Any) -> Iterator[list[Any]]:
    """The results of every annotation that was not cancelled."""
    found = task.get("annotations") if isinstance(task, dict) else None
    for annotation in found if isinstance(found, list) else ():
        if isinstance(annotation, dict) and not annotation.get("was_cancelled") and isinstance(annotation.get("result"), list):
            yield annotation["result"]


def _choices(result: Any) -> tuple[str, list[Any]] | None:
    """The name of the tag and the labels that were chosen, if a result is a choice or a path in a taxonomy."""
    if not isinstance(result, dict) or not isinstance(result.get("value"), dict):
        return None
    value = result["value"]
    if isinstance(value.get("choices"), list):
        return str(result.get("from_name")), value["choices"]
    if isinstance(value.get("taxonomy"), list):
        return str(result.get("from_name")), [path[-1] for path in value["taxonomy"] if isinstance(path, list) and path]
    return None


def _control(tasks: list[Any], asked: str | None, where: str) -> str | None:
    found = [_choices(result) for task in tasks for results in _annotations(task) for result in results]
    names = list(dict.fromkeys(choice[0] for choice in found if choice))
    if asked is not None and asked in names:
        return asked
    if asked is not None and asked != LABELS:
        raise DataError(f"{where}: there are no choices {brief(asked)} among ({', '.join(names)}); name one with --label-column")
    if len(names) > 1:
        raise DataError(f"{where}: there are several sets of choices ({', '.join(names)}); name one with --label-column")
    return names[0] if names else None


def _judgements(task: Any, control: str | None) -> list[list[str]]:
    """The labels that each annotator chose."""
    judged = []
    for results in _annotations(task):
        found = [choice for result in results if (choice := _choices(result)) and choice[0] == control]
        judged.append(list(dict.fromkeys(label_names(name for _, names in found for name in names))))
    return judged


def task_of(document: Document) -> str:
    """A document as a task with one annotation; id, group, weight and unknown labels are keys of its data."""
    extra = {"group": document.group, WEIGHT: document.weight, UNKNOWN: document.unknown}
    data = {"id": document.id, "text": document.text, **{key: value for key, value in extra.items() if value is not None}}
    value = {"choices": list(document.labels)}
    result = {"from_name": _CONTROL, "to_name": _OBJECT, "type": "choices", "value": value}
    return json.dumps({"data": data, "annotations": [{"result": [result] if document.labels else []}]}, ensure_ascii=False)


# -- doccano -----------------------------------------------------------------------------------------------------------


def doccano_records(stream: BinaryIO) -> Records:
    """Lines of a doccano export of text classification; its labels are under ``label``, the text under ``text`` or ``data``."""
    for number, record in json_records(stream, '{"text": "...", "label": ["..."]}'):
        yield number, record if isinstance(record, BadLine) else _doccano(record)


def _doccano(record: Mapping[str, Any]) -> Mapping[str, Any] | BadLine:
    key = next((name for name in _DOCCANO if name in record), None)
    labels = record.get(key) if key else None
    if isinstance(labels, list) and any(isinstance(label, list | dict) for label in labels):
        return BadLine("the labels are spans of the text; export a project of text classification")
    rest = {name: value for name, value in record.items() if name != key}
    if "text" not in rest and "data" in rest:
        rest["text"] = rest.pop("data")
    return rest if key is None else {**rest, LABELS: labels if labels is not None else []}


def doccano_of(document: Document) -> str:
    """A document as a line that doccano imports; it keeps other keys as metadata."""
    record: dict[str, Any] = {"id": document.id, "text": document.text, "label": list(document.labels)}
    extra = {"group": document.group, WEIGHT: document.weight, UNKNOWN: document.unknown}
    return json.dumps(record | {key: value for key, value in extra.items() if value is not None}, ensure_ascii=False)
