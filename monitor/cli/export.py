"""`specwatch export`: the history of a route as a file for other programs."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.history import local_zone, require_domain, require_route
from monitor.cli.output import cell, csv_text, parse_time
from monitor.core.figures import GROUPINGS, HISTORY_METRICS
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.cli.context import Context

PROFILE = "speculation_profile.json"
SUFFIXES = (".parquet", ".csv", ".json")
KINDS = {
    **dict.fromkeys(("source", "metric", "method", "drafter", "warm"), "string"),
    **dict.fromkeys(("k", "baseline_id"), "int64"),
    **dict.fromkeys((*HISTORY_METRICS, "value", "baseline_value", "change"), "float64"),
}
"""Columns that may have no value at all in a file."""


@click.command()
@click.argument("route")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--domain", help="Only this domain.")
@click.option(
    "--since", callback=parse_time, metavar="TIME", help="From this time or age on: 24h, 7d, 2026-11-30T08:00."
)
@click.option("--until", callback=parse_time, metavar="TIME", help="Up to this time or age.")
@click.option("--group-by", type=click.Choice(GROUPINGS), default="run", show_default=True, help="Pool runs by this.")
@click.option("--force", is_flag=True, help="Overwrite the file when it is there.")
@click.pass_obj
def export(
    context: Context,
    route: str,
    file: Path,
    domain: str | None,
    since: datetime | None,
    until: datetime | None,
    group_by: str,
    *,
    force: bool,
) -> None:
    """Write the history of ROUTE to FILE, whose name says how: NAME.parquet, NAME.csv or NAME.json.

    The rows are those of 'specwatch history --format json'; lists and objects within a row are JSON in Parquet and
    CSV. A file named speculation_profile.json is NVIDIA's: the valid runs that are like the latest one (identity,
    source, K, concurrency, sampling), pooled by position.
    """
    if file.suffix not in SUFFIXES:
        raise UsageError(f"{file}: the name says nothing of its shape; expected is .parquet, .csv, .json or {PROFILE}")
    if file.exists() and not force:
        raise UsageError(f"{file} is there already; --force overwrites it")
    if since is not None and until is not None and until <= since:
        raise click.UsageError("--until is not after --since; no run can be between them")
    with context.database() as database, database.transaction() as connection:
        require_route(connection, route)
        if domain is not None:
            require_domain(connection, route, domain)
        if file.name == PROFILE:
            profile = _profile(connection, route, domain, since, until)
            with _writable(file):
                _write_json(file, profile)
            click.echo(f"{file}: the speculation profile of {route}", err=True)
            return
        rows = _rows(connection, route, domain=domain, since=since, until=until, group_by=group_by)
    if not rows:
        raise UsageError(f"no runs of route {route} in this window; nothing was written")
    with _writable(file):
        _write(file, rows)
    click.echo(f"{file}: {len(rows)} rows", err=True)


def _rows(connection: Connection, route: str, **asked: Any) -> list[dict[str, Any]]:
    from monitor.store.history import history

    return history(connection, route, zone=local_zone(), **asked)


@contextmanager
def _writable(file: Path) -> Iterator[None]:
    """Turns what the file system refuses into UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}; make room, or name another file") from None


def _write(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    match file.suffix:
        case ".parquet":
            from monitor.exchange.files import write_parquet

            write_parquet(file, [{name: cell(value) for name, value in row.items()} for row in rows], KINDS)
        case ".csv":
            file.write_text(csv_text(rows), encoding="utf-8")
        case _:
            _write_json(file, rows)


def _write_json(file: Path, document: Any) -> None:
    file.write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _profile(
    connection: Connection, route: str, domain: str | None, since: datetime | None, until: datetime | None
) -> dict[str, Any]:
    from monitor.exchange.profile import speculation_profile
    from monitor.store.profile import profile_runs

    found = profile_runs(connection, route, domain, since, until)
    if found is None:
        raise UsageError(f"no valid runs of route {route} in this window; there is nothing to make a profile of")
    if found.k is None:
        raise UsageError(f"the K of route {route} is unknown or varies, and a profile is of one K; declare it as k")
    return speculation_profile(found.runs, found.identity, found.k, found.conditions)
