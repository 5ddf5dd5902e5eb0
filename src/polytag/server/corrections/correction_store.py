"""Stores corrections: each is one transaction, done once per idempotency key, and undone without being forgotten."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Engine, delete, exists, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from polytag.server.corrections.correction_record import Correction
from polytag.server.corrections.correction_tables import CORRECTIONS, LEARNED, TEXTS, TRAIL
from polytag.server.problem import Problem

_C = CORRECTIONS.c
_PAGE = 500  # rows that are read at once


class CorrectionStore:
    """The corrections of one database."""

    def __init__(self, engine: Engine) -> None:
        """Keep the connection pool."""
        self.engine = engine

    def add(self, correction: Correction) -> tuple[dict[str, Any], bool]:
        """Store a correction; returns its record, and whether it is new (a known idempotency key returns the earlier one)."""
        for _ in range(3):  # another process may store the same text or the same key at this moment
            earlier = self._earlier(correction)
            if earlier is not None:
                return earlier, False
            try:
                return self._inserted(correction), True
            except IntegrityError:
                continue
        raise Problem(503, "the correction could not be stored now; send it again", {"Retry-After": "1"})

    def _earlier(self, correction: Correction) -> dict[str, Any] | None:
        if correction.key is None:
            return None
        same = (_C.user == correction.user) & (_C.idempotency_key == correction.key)
        found = next(self._read(_joined().where(same)), None)
        if found is not None and found.pop("digest") != correction.digest():
            raise Problem(409, "this Idempotency-Key was used for another correction; take a new one")
        return found

    def _inserted(self, correction: Correction) -> dict[str, Any]:
        now, key = time.time(), text_key(correction.text)
        with self.engine.begin() as connection:
            if connection.execute(select(TEXTS.c.key).where(TEXTS.c.key == key)).first() is None:
                connection.execute(insert(TEXTS).values(key=key, text=correction.text, time=now))
            row: dict[str, Any] = {name: [*getattr(correction, name)] for name in ("accepted", "removed", "added")}
            row |= {name: getattr(correction, name) for name in ("user", "model", "version", "document")}
            row |= {"text_key": key, "time": now, "idempotency_key": correction.key, "digest": correction.digest()}
            found = connection.execute(insert(CORRECTIONS).values(row).returning(_C.id)).scalar_one()
            _note(connection, correction.user, "correct", str(found))
        return self.get(int(found))

    def get(self, number: int) -> dict[str, Any]:
        """One correction."""
        found = next(self._read(_joined().where(_C.id == number)), None)
        if found is None:
            raise Problem(404, f"there is no correction {number}")
        found.pop("digest")
        return found

    def undo(self, number: int, user: str) -> dict[str, Any]:
        """Mark a correction as undone; doing it twice changes nothing."""
        self.get(number)
        with self.engine.begin() as connection:
            mark = update(CORRECTIONS).where((_C.id == number) & _C.undone.is_(None))
            if connection.execute(mark.values(undone=time.time(), undone_by=user)).rowcount:
                _note(connection, user, "undo", str(number))
        return self.get(number)

    def page(
        self, *, user: str | None = None, text: str | None = None, after: int = 0, limit: int = 100, newest: bool = False
    ) -> list[dict[str, Any]]:
        """Corrections in the order in which they came, or the newest first, those that were undone included."""
        query = (_joined(_C.id.desc()) if newest else _joined()).where(_C.id > after)
        query = query if user is None else query.where(_C.user == user)
        query = query if text is None else query.where(_C.text_key == text_key(text))
        rows = [*self._read(query.limit(limit))]
        for row in rows:
            row.pop("digest")
        return rows

    def count(self) -> int:
        """The number of corrections that stand."""
        with self.engine.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(CORRECTIONS).where(_C.undone.is_(None))).scalar_one())

    def standing(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """All corrections that were not undone, ordered by text and then by time; ``after`` is an id."""
        yield from self._read(_joined(_C.text_key, _C.id).where(_C.undone.is_(None) & (_C.id > after)))

    def learned(self, model: str, version: str) -> int:
        """The last correction that a version of a model learned from; 0 = none."""
        query = select(LEARNED.c.correction).where((LEARNED.c.model == model) & (LEARNED.c.version == version))
        with self.engine.connect() as connection:
            return int(connection.execute(query).scalar() or 0)

    def note_learned(self, model: str, version: str, correction: int) -> None:
        """Remember what a version learned from."""
        with self.engine.begin() as connection:
            connection.execute(delete(LEARNED).where((LEARNED.c.model == model) & (LEARNED.c.version == version)))
            connection.execute(insert(LEARNED).values(model=model, version=version, correction=correction))

    def note(self, user: str, action: str, subject: str) -> None:
        """Add to the audit trail."""
        with self.engine.begin() as connection:
            _note(connection, user, action, subject)

    def texts(self) -> set[str]:
        """The texts that somebody corrected."""
        with self.engine.connect() as connection:
            query = select(TEXTS.c.text).where(exists().where((_C.text_key == TEXTS.c.key) & _C.undone.is_(None)))
            return set(connection.execute(query).scalars())

    def forget(self, user: str, by: str) -> dict[str, int]:
        """Delete a person's corrections, and the texts that nobody else corrected; the trail keeps that it happened."""
        with self.engine.begin() as connection:
            corrections = connection.execute(delete(CORRECTIONS).where(_C.user == user)).rowcount
            orphans = ~exists().where(_C.text_key == TEXTS.c.key)
            texts = connection.execute(delete(TEXTS).where(orphans)).rowcount
            connection.execute(delete(TRAIL).where(TRAIL.c.user == user))
            _note(connection, by if by != user else "", "forget", f"{corrections} corrections, {texts} texts")
        return {"corrections": corrections, "texts": texts}

    def trail(self, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """What was done, by whom and when."""
        query = select(TRAIL).where(TRAIL.c.id > after).order_by(TRAIL.c.id).limit(limit)
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def _read(self, query: Any) -> Iterator[dict[str, Any]]:
        with self.engine.connect() as connection:
            for row in connection.execution_options(yield_per=_PAGE).execute(query).mappings():
                yield dict(row)


def text_key(text: str) -> str:
    """What a text is known by."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _joined(*order: Any) -> Any:
    names = (
        "id",
        "user",
        "time",
        "model",
        "version",
        "document",
        "accepted",
        "removed",
        "added",
        "undone",
        "undone_by",
        "digest",
    )
    columns = [_C[name] for name in names]
    return select(*columns, TEXTS.c.text).join(TEXTS, TEXTS.c.key == _C.text_key).order_by(*(order or (_C.id,)))


def _note(connection: Any, user: str, action: str, subject: str) -> None:
    connection.execute(insert(TRAIL).values(time=time.time(), user=user, action=action, subject=subject))
