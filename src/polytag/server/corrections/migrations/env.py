"""Run by alembic for every step, on the connection that ``upgraded`` passes."""

from alembic import context

from polytag.server.corrections.correction_tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
