"""What `serve` tells about runs while it works: a line each, and a replica that cannot be measured once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from monitor.core.format import change, figure
from monitor.core.records import Reason
from monitor.engines.failures import GONE
from monitor.service.complaint import Complaint

if TYPE_CHECKING:
    from monitor.core.records import Run
    from monitor.service.recording import Recorded

logger = logging.getLogger(__name__)


def run_line(run: Run, recorded: Recorded) -> str:
    """A run in one line: figures, change from its baseline, why it was made if not on schedule, and how it ended."""
    figures = recorded.figures
    parts = [
        f"{run.route} · {run.domain}",
        f"AL {figure('acceptance_length', figures.acceptance_length)}",
        f"{figures.prompts_valid}/{figures.prompts_total}",
    ]
    judged = next((verdict for _, verdict in recorded.verdicts if verdict.estimate is not None), None)
    if judged is not None and judged.estimate is not None:
        parts.append(f"{change(judged.estimate.change)} of baseline")
    elif run.invalid_reason is None:
        parts.append("no baseline yet")
    if run.reason is not Reason.SCHEDULED:
        parts.append(run.reason.value)
    parts.append(run.invalid_reason or "ok")
    if recorded.baseline_id is not None:
        parts.append(f"baseline {recorded.baseline_id} approved")
    if recorded.bump_id is not None:
        parts.append(f"bump {recorded.bump_id}: what is running has changed")
    return "  ".join(parts)


class RunLog:
    """Says each run on the log; a replica that is away is told once, and once when it is back."""

    def __init__(self) -> None:
        self._replicas: dict[str, Complaint] = {}

    def tell(self, run: Run, recorded: Recorded) -> None:
        away = self._replicas.setdefault(
            run.replica,
            Complaint(logger, f"{run.replica} cannot be measured", f"{run.replica} can be measured again"),
        )
        if run.invalid_reason in GONE:
            where = f"run {recorded.run_id} of {run.route} · {run.domain}"
            away.raise_for(f"{run.invalid_detail} ({where})", kind=run.invalid_reason)
            return
        away.end()
        if run.invalid_reason is None:
            logger.info("%s", run_line(run, recorded))
        else:
            logger.warning("run %s: %s: %s", recorded.run_id, run_line(run, recorded), run.invalid_detail)
