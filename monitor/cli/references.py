"""`specwatch reference`: what other tools measured, to look at beside our own figures."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.cli.output import Column, emit, format_option
from monitor.core.format import NOTHING, figure
from monitor.errors import UsageError

if TYPE_CHECKING:
    from monitor.cli.context import Context


@click.group()
def reference() -> None:
    """Import and list figures of other tools. They are shown, and never used for judging."""


@reference.command(name="import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--route", help="Show the lines with this route only.  [default: with every route]")
@click.option("--domain", help="What was measured, for a file that does not say.")
@click.pass_obj
def import_(context: Context, file: Path, route: str | None, domain: str | None) -> None:
    """Keep the acceptance that FILE reports as reference lines.

    FILE is the result of 'vllm bench serve' (.json), AIPerf's profile_export.jsonl, acceptance.csv of speculators,
    InferenceX's golden acceptance lengths (.yaml), or a speculation_profile.json.
    """
    from monitor.exchange.references import read_references
    from monitor.store.references import list_references, store_references

    lines = read_references(file, domain)
    with context.database() as database, database.transaction() as connection:
        ids = store_references(
            connection,
            lines,
            file_name=file.name,
            file_hash=hashlib.sha256(file.read_bytes()).hexdigest(),
            route=route,
            imported_at=datetime.now(UTC),
        )
        rows = [row for row in list_references(connection) if row["id"] in ids]
    if not ids:
        raise UsageError(f"{file}: is imported already; see 'specwatch reference list'")
    emit(rows, COLUMNS, "table", "")
    click.echo(f"reference lines kept: {len(rows)}; they are shown, and never used for judging", err=True)


@reference.command(name="list")
@click.option("--route", help="Only those of this route and those for every route.")
@click.option("--domain", help="Only this domain.")
@format_option
@click.pass_obj
def list_(context: Context, route: str | None, domain: str | None, format_: str) -> None:
    """List the reference lines in the order of their import. They are never used for judging."""
    from monitor.store.references import list_references

    with context.database() as database, database.transaction() as connection:
        rows = list_references(connection, route, domain)
    emit(rows, COLUMNS, format_, "no reference lines; 'specwatch reference import' keeps them")


@reference.command()
@click.argument("file_name")
@click.pass_obj
def remove(context: Context, file_name: str) -> None:
    """Forget the reference lines of the file FILE_NAME."""
    from monitor.store.references import remove_references

    with context.database() as database, database.transaction() as connection:
        removed = remove_references(connection, file_name)
    if not removed:
        raise UsageError(f"there are no reference lines of {file_name}; see 'specwatch reference list'")
    click.echo(f"reference lines of {file_name} removed: {removed}", err=True)


COLUMNS = [
    Column("file", lambda row: row["file_name"]),
    Column("tool", lambda row: row["tool"]),
    Column("route", lambda row: row["route"] or "every"),
    Column("domain", lambda row: row["domain"] or NOTHING),
    Column("model", lambda row: row["model"] or NOTHING),
    Column("setting", lambda row: row["label"] or NOTHING),
    Column("K", lambda row: NOTHING if row["k"] is None else str(row["k"]), right=True),
    Column("AL", lambda row: figure("acceptance_length", row["acceptance_length"]), right=True),
    Column("AR", lambda row: figure("acceptance_rate", row["acceptance_rate"]), right=True),
    Column("source", lambda row: row["source"]),
]
