"""A job whose time has not come does not hold up the other jobs of its replica.

Procrastinate keeps the jobs of one lock in order of priority even while the first of them is scheduled for later: the
two confirmation runs of a trip, queued for five and ten minutes on, would keep every other probe off the replica.
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

WAITING = "other_jobs.status = 'todo'"
WAITING_AND_DUE = f"{WAITING} AND (other_jobs.scheduled_at IS NULL OR other_jobs.scheduled_at <= now())"


def upgrade() -> None:
    connection = op.get_bind()
    fetch = "SELECT pg_get_functiondef('procrastinate_fetch_job_v2'::regproc)"
    definition = connection.exec_driver_sql(fetch).scalar_one()
    if definition.count(WAITING) != 1:
        raise RuntimeError("this Procrastinate fetches jobs in another way: adapt migration 0003 to it")
    connection.exec_driver_sql(definition.replace(WAITING, WAITING_AND_DUE).replace("%", "%%"))
