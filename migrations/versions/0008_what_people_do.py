"""When an incident's transition is to be told: domains that join together are told together."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("incident_events", sa.Column("due_at", sa.DateTime(timezone=True), nullable=True))
