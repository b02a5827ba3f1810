"""`specwatch db`: the schema of the store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from monitor.cli.output import document_format_option

if TYPE_CHECKING:
    from monitor.cli.context import Context


@click.group()
def db() -> None:
    """Upgrade the database schema or show its state."""


@db.command()
@click.pass_obj
def upgrade(context: Context) -> None:
    """Bring an empty or older schema to this version's."""
    from monitor.store import migrate

    with context.database(reading=False) as database:
        before = migrate.status(database)
        after = migrate.upgrade(database)
    if before.current == after.current:
        click.echo(f"schema is at {after.current}, nothing to do")
    else:
        click.echo(f"schema upgraded from {before.current or 'nothing'} to {after.current}")


@db.command()
@document_format_option
@click.pass_obj
def status(context: Context, format_: str) -> None:
    """Show where the schema is and where it should be; exit code 3 unless they agree."""
    from monitor.store import migrate

    with context.database(reading=False) as database:
        found = migrate.status(database)
        where = database.url.render_as_string(hide_password=True)
    document = {"database": where, "current": found.current, "head": found.head, "up_to_date": found.up_to_date}
    if format_ == "json":
        click.echo(json.dumps(document))
    else:
        click.echo(f"database  {where}")
        click.echo(f"schema    {found.current or 'empty'}")
        word = "up to date" if found.up_to_date else "run 'specwatch db upgrade'"
        click.echo(
            f"needed    {found.head} ({word if found.known else 'made by a newer Specwatch: upgrade Specwatch'})"
        )
    if not found.up_to_date:
        raise SystemExit(3)
