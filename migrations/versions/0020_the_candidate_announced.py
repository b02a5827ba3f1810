"""A promotion announces its candidate: a change to something else is not the announced one."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0020"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "announcements",
        sa.Column(
            "candidate",
            JSONB(),
            nullable=True,
            comment="Identity of what was running where a gate passed that is promoted; NULL: no gate.",
        ),
    )
