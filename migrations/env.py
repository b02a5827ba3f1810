"""Runs the migrations on the connection that monitor.store.migrate hands over; there is no other way in."""

from alembic import context

from monitor.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
