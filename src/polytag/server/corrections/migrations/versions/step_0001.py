"""Texts, corrections, the audit trail, and what versions learned."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "texts",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
    )
    op.create_table(
        "corrections",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("text_key", sa.String(64), sa.ForeignKey("texts.key"), nullable=False),
        sa.Column("user", sa.String(200), nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("version", sa.String(64), nullable=False),
        sa.Column("accepted", sa.JSON, nullable=False),
        sa.Column("removed", sa.JSON, nullable=False),
        sa.Column("added", sa.JSON, nullable=False),
        sa.Column("document", sa.String(500)),
        sa.Column("idempotency_key", sa.String(200)),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("undone", sa.Double),
        sa.Column("undone_by", sa.String(200)),
        sa.UniqueConstraint("user", "idempotency_key", name="one_per_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("corrections_of_text", "corrections", ["text_key"])
    op.create_index("corrections_of_user", "corrections", ["user"])
    op.create_table(
        "trail",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("user", sa.String(200), nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("subject", sa.String(500), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "learned",
        sa.Column("model", sa.String(200), primary_key=True),
        sa.Column("version", sa.String(64), primary_key=True),
        sa.Column("correction", sa.Integer, nullable=False),
    )


def downgrade() -> None:
    """Drop the tables."""
    for name in ("learned", "trail", "corrections", "texts"):
        op.drop_table(name)
