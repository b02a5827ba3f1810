"""`specwatch runbook`: what to do about an alert."""

from __future__ import annotations

import click


@click.command()
def runbook() -> None:
    """Show what to do about an alert, and what each of its lines means; needs no database and no configuration.

    The page that alerts name when alerting.yaml has no runbook_url; `serve` has it as /runbook.
    """
    from monitor.runbook import runbook as page

    click.echo_via_pager(page())
