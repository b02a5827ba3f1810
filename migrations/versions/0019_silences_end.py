"""Before a silence ends whose incident still fires, its receivers are told: once, and since when is kept."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "silences",
        sa.Column(
            "end_told_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When its end was told ahead, of what still fired then.",
        ),
    )
