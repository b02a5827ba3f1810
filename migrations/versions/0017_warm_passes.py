"""The warm pass of a run, beside the cold one that is judged."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0017"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "Of the warm pass, where the run had one beside the cold one."
    op.add_column("runs", sa.Column("warm", postgresql.JSONB(), nullable=True, comment=comment))
