"""Renders `docs/cli.md` from the commands themselves."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

import click

from monitor.cli import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

_INTRODUCTION = """\
# Command line

Made by `make docs` from the commands themselves; change the descriptions there.

Times are shown in the local zone, which a table names in its heading. `--format json` and `csv` hold every field, in
the shapes of [json.md](json.md); `table` and `markdown` hold the columns that fit. What is the same in every row of a
table, such as K and the source, is said once above it; in a pipe no row is broken, and sentences
that would make one longer than 100 columns stand under it. Messages for people go to stderr, results to stdout.
"""


def reference_markdown() -> str:
    """The text of `docs/cli.md`: every command and option there is."""
    sections = [_section(context, command) for context, command in commands()]
    return "\n".join([_INTRODUCTION, *sections])


def commands() -> Iterator[tuple[click.Context, click.Command]]:
    """Every command with a context that knows its full name: groups before what they hold, in the order of the help."""
    yield from _walk(click.Context(cli, info_name="specwatch"), cli)


def _walk(context: click.Context, command: click.Command) -> Iterator[tuple[click.Context, click.Command]]:
    yield context, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _walk(click.Context(child, parent=context, info_name=name), child)


def _section(context: click.Context, command: click.Command) -> str:
    level = "##" if context.parent is None or context.parent.parent is None else "###"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    options = [p for p in command.get_params(context) if isinstance(p, click.Option) and "--help" not in p.opts]
    return "\n".join([f"{level} {context.command_path}", "", f"`{usage}`", "", text, "", *_table(context, options)])


def _table(context: click.Context, options: list[click.Option]) -> Iterator[str]:
    if options:
        yield from ("| option | default | meaning |", "| --- | --- | --- |")
        yield from (_row(context, option) for option in options)
        yield ""


def _row(context: click.Context, option: click.Option) -> str:
    names = ", ".join(option.opts + option.secondary_opts)
    value = "" if option.is_flag else f" {_value(context, option)}"
    default = option.get_help_extra(context).get("default")
    required = ["Required."] if option.required else []
    meaning = " ".join([option.help or "", *_allowed(option.type), *required])
    cells = [f"`{names}{value}`", f"`{default}`" if default else "", meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _value(context: click.Context, option: click.Option) -> str:
    if option.metavar is None and isinstance(option.type, click.Choice):
        return option.opts[-1].lstrip("-").upper()
    return option.make_metavar(context).replace(" RANGE", "").replace("INTEGER", "N")


def _allowed(kind: click.ParamType[Any]) -> Iterator[str]:
    if isinstance(kind, click.Choice):
        yield "One of " + ", ".join(f"`{choice}`" for choice in kind.choices) + "."
    elif isinstance(kind, click.IntRange | click.FloatRange):
        yield f"At least {kind.min}." if kind.max is None else f"From {kind.min} to {kind.max}."


if __name__ == "__main__":
    sys.stdout.write(reference_markdown())
