"""What the on-call reads where they have no runbook of their own: docs/alerts.md, what to do first."""

from __future__ import annotations

import re

from monitor.resources import resource_directory

FIRST = "## What to do\n"


def runbook() -> str:
    """The page as Markdown. Raises SpecwatchError when this installation lacks it."""
    page = (resource_directory("docs") / "alerts.md").read_text(encoding="utf-8")
    title, *sections = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    return "".join([title, *sorted(sections, key=lambda section: not section.startswith(FIRST))])
