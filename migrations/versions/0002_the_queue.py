"""The job queue's own tables and functions, from the installed Procrastinate (pinned to one minor version)."""

from alembic import op
from procrastinate.schema import SchemaManager

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.get_bind().exec_driver_sql(SchemaManager.get_schema().replace("%", "%%"))
