"""A receiver that will not get a message has an incident of its own; what it did not get is found by receiver."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_deliveries_dead", "deliveries", ["receiver"], postgresql_where=sa.text("state = 'dead'"))
    op.alter_column(
        "incidents",
        "route",
        existing_type=sa.Text(),
        existing_nullable=False,
        comment="`receiver NAME` where it is of a receiver.",
    )
