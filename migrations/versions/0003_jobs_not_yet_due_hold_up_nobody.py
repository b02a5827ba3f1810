"""A job that is not due yet holds up no other job of its replica.

Procrastinate lets a waiting job keep the lock from younger and less urgent ones even while its own time is hours away:
a confirmation due in ten minutes would stop every probe of its replica until then.
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

WAITING = "other_jobs.status = 'todo'"
DUE = f"{WAITING} AND (other_jobs.scheduled_at IS NULL OR other_jobs.scheduled_at <= now())"


def upgrade() -> None:
    connection = op.get_bind()
    query = "SELECT pg_get_functiondef('procrastinate_fetch_job_v2'::regproc)"
    definition: str = connection.exec_driver_sql(query).scalar_one()
    if definition.count(WAITING) != 1:
        raise RuntimeError("procrastinate_fetch_job_v2 is not the function of Procrastinate 3.10")
    connection.exec_driver_sql(definition.replace(WAITING, DUE).replace("%", "%%"))
