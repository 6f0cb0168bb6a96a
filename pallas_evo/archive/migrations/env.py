"""Alembic's entry point. Always run by `pallas_evo.archive.migrate`, on a connection that it opened."""

from alembic import context

from pallas_evo.archive.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite alters a table only by making it anew
    transactional_ddl=True,  # one transaction for all steps: a kill leaves the old schema
)
with context.begin_transaction():
    context.run_migrations()
