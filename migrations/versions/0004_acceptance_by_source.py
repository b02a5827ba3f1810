"""What each source says of a run's acceptance length, side by side."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    column = sa.Column("acceptance_by_source", postgresql.JSONB(), nullable=False, server_default=sa.text("'{}'"))
    op.add_column("runs", column)
