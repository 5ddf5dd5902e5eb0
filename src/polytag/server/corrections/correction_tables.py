"""The tables of corrections; ``migrations/`` has the steps that make them."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Double, ForeignKey, Index, Integer, MetaData, String, Table, Text, UniqueConstraint

METADATA = MetaData()

TEXTS = Table(
    "texts",
    METADATA,
    Column("key", String(64), primary_key=True),  # sha256 of the text
    Column("text", Text, nullable=False),
    Column("time", Double, nullable=False),
)
CORRECTIONS = Table(
    "corrections",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("text_key", String(64), ForeignKey("texts.key"), nullable=False),
    Column("user", String(200), nullable=False),
    Column("time", Double, nullable=False),
    Column("model", String(200), nullable=False),
    Column("version", String(64), nullable=False),
    Column("accepted", JSON, nullable=False),
    Column("removed", JSON, nullable=False),
    Column("added", JSON, nullable=False),
    Column("document", String(500)),  # the client's own id of the text
    Column("idempotency_key", String(200)),
    Column("digest", String(64), nullable=False),  # of what was sent, to notice a key that is used for something else
    Column("undone", Double),
    Column("undone_by", String(200)),
    UniqueConstraint("user", "idempotency_key", name="one_per_key"),
    Index("corrections_of_text", "text_key"),
    Index("corrections_of_user", "user"),
    sqlite_autoincrement=True,
)
TRAIL = Table(
    "trail",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("time", Double, nullable=False),
    Column("user", String(200), nullable=False),
    Column("action", String(40), nullable=False),
    Column("subject", String(500), nullable=False),
    sqlite_autoincrement=True,
)
LEARNED = Table(
    "learned",
    METADATA,
    Column("model", String(200), primary_key=True),
    Column("version", String(64), primary_key=True),
    Column("correction", Integer, nullable=False),  # the last one
)
