"""`specwatch prune`: remove old samples and passive readings now, or tell what would go."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import document_format_option, local_time
from monitor.core.format import count
from monitor.errors import UsageError

if TYPE_CHECKING:
    from datetime import timedelta

    from monitor.cli.context import Context
    from monitor.config.retention import Retention
    from monitor.store.database import Database


def age(_ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """How old what goes must be, as `retention` in routes.yaml has it."""
    from pydantic import ValidationError

    from monitor.config.retention import Retention

    if value is None:
        return None
    try:
        found: timedelta | None = getattr(Retention.model_validate({param.name: value}), str(param.name))
    except ValidationError as error:
        raise click.BadParameter(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
    return found


@click.command()
@click.option("--dry-run", is_flag=True, help="Only tell what would be removed.")
@click.option("--samples", metavar="AGE", callback=age, help="Instead of retention.samples in routes.yaml: 90d.")
@click.option("--organic", metavar="AGE", callback=age, help="Instead of retention.organic in routes.yaml: 180d.")
@document_format_option
@click.pass_obj
def prune(context: Context, dry_run: bool, samples: timedelta | None, organic: timedelta | None, format_: str) -> None:
    """Remove old samples and passive readings now, as 'specwatch serve' does once a day.

    Goes by 'retention' in routes.yaml. Runs, verdicts, incidents, baselines and gates stay, and so do the samples that
    a baseline or an incident rests on. What is removed is gone: docs/operations.md says what then cannot be had.
    """
    from monitor.config.retention import Retention

    written = Retention() if samples or organic else context.load_config().retention
    settings = Retention(samples=samples, organic=organic) if samples or organic else written
    if settings.samples is None and settings.organic is None:
        raise UsageError(
            "nothing is ever removed: routes.yaml has no 'retention'. "
            "'specwatch prune --dry-run --samples 90d' tells what an age would remove"
        )
    with context.database(reading=dry_run) as database:
        document = _removable(database, settings) if dry_run else _removed(database, settings)
    if format_ == "json":
        click.echo(json.dumps(document, indent=2))
        return
    _print(document)


def _removable(database: Database, settings: Retention) -> dict[str, Any]:
    from monitor.store import retention

    document = _empty(settings, dry_run=True)
    with database.transaction() as connection:
        if of_samples := document["samples"]:
            before = datetime.fromisoformat(of_samples["before"])
            found = retention.removable_samples(connection, before)
            of_samples |= {"runs": found.runs, "samples": found.samples}
            of_samples["kept_runs"] = retention.kept_samples(connection, before)
        if of_organic := document["organic"]:
            before = datetime.fromisoformat(of_organic["before"])
            of_organic["readings"] = retention.removable_organic(connection, before)
    return document


def _removed(database: Database, settings: Retention) -> dict[str, Any]:
    from monitor.service.pruning import Pruning
    from monitor.store import retention

    document = _empty(settings, dry_run=False)
    pruned = asyncio.run(Pruning(database, settings, lambda: datetime.now(UTC)).prune())
    if of_samples := document["samples"]:
        of_samples |= {"runs": pruned.runs, "samples": pruned.samples}
        with database.transaction() as connection:
            of_samples["kept_runs"] = retention.kept_samples(connection, datetime.fromisoformat(of_samples["before"]))
    if of_organic := document["organic"]:
        of_organic["readings"] = pruned.organic
    return document


def _empty(settings: Retention, *, dry_run: bool) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "dry_run": dry_run,
        "samples": settings.samples and {"before": (now - settings.samples).isoformat()},
        "organic": settings.organic and {"before": (now - settings.organic).isoformat()},
    }


def _print(document: dict[str, Any]) -> None:
    done = "would be removed" if document["dry_run"] else "removed"
    if of_samples := document["samples"]:
        click.echo(
            f"samples  {count(of_samples['samples'], 'sample')} of {count(of_samples['runs'], 'run')} that ended "
            f"before {local_time(of_samples['before'])} {done}; {count(of_samples['kept_runs'], 'run')} as old kept "
            "with samples, for a baseline or an incident"
        )
    if of_organic := document["organic"]:
        readings = count(of_organic["readings"], "passive reading")
        click.echo(f"organic  {readings} from before {local_time(of_organic['before'])} {done}")
