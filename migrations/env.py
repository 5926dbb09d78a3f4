"""Alembic's entry: it is handed an open connection by snapapp.jobs.migrations, which also holds the advisory lock."""

from alembic import context

given = context.config.attributes
context.configure(
    connection=given["connection"],
    version_table=given["version_table"],
    target_metadata=None,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
