"""`specwatch prompts`: the fixed prompts of each domain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.cli.output import Column, document_format_option, emit, format_option
from monitor.errors import UsageError

if TYPE_CHECKING:
    from monitor.prompts.sets import PromptSet

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory of DOMAIN.jsonl files.  [default: the sets that come with Specwatch]",
)


@click.group()
def prompts() -> None:
    """List, show and lint prompt sets."""


def _load(directory: Path | None) -> dict[str, PromptSet]:
    from monitor.prompts.sets import bundled_directory, load_prompt_sets

    return load_prompt_sets(directory or bundled_directory())


@prompts.command(name="list")
@directory_option
@format_option
def list_(directory: Path | None, format_: str) -> None:
    """List the prompt sets with the hash that identifies each."""
    rows = [
        {
            "domain": domain,
            "prompts": len(found.prompts),
            "turns": sum(len(prompt.turns) for prompt in found.prompts),
            "characters": sum(len(turn) for prompt in found.prompts for turn in prompt.turns),
            "content_hash": found.content_hash,
        }
        for domain, found in sorted(_load(directory).items())
    ]
    columns = [
        Column("domain", lambda row: row["domain"]),
        Column("prompts", lambda row: str(row["prompts"]), right=True),
        Column("turns", lambda row: str(row["turns"]), right=True),
        Column("characters", lambda row: f"{row['characters']:,}", right=True),
        Column("hash", lambda row: row["content_hash"][:16]),
    ]
    emit(rows, columns, format_, "no prompt sets")


@prompts.command()
@click.argument("domain")
@click.option("--question", "question_id", help="Only this prompt.")
@directory_option
@document_format_option
def show(domain: str, question_id: str | None, directory: Path | None, format_: str) -> None:
    """Show the prompts of DOMAIN."""
    sets = _load(directory)
    if domain not in sets:
        raise UsageError(f"there is no prompt set {domain}; there are: {', '.join(sorted(sets))}")
    found = [p for p in sets[domain].prompts if question_id in (None, p.question_id)]
    if not found:
        raise UsageError(f"{domain} has no prompt {question_id}; see 'specwatch prompts show {domain}'")
    if format_ == "json":
        keys = ("question_id", "category", "sub_category")
        rows = [{**{key: getattr(p, key) for key in keys}, "turns": list(p.turns)} for p in found]
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for prompt in found:
        click.echo(f"── {prompt.question_id} ({prompt.sub_category})")
        for number, turn in enumerate(prompt.turns, start=1):
            click.echo(turn if len(prompt.turns) == 1 else f"[turn {number}] {turn}")
        click.echo()


@prompts.command()
@directory_option
@click.argument("domains", nargs=-1)
def lint(directory: Path | None, domains: tuple[str, ...]) -> None:
    """Refuse sets that would measure badly, saying why; exit code 2 when any is refused."""
    from monitor.prompts.lint import lint as lint_set

    sets = _load(directory)
    unknown = sorted(set(domains) - set(sets))
    if unknown:
        raise UsageError(f"there is no prompt set {unknown[0]}; there are: {', '.join(sorted(sets))}")
    refused = 0
    for domain in domains or sorted(sets):
        problems = lint_set(sets[domain])
        refused += bool(problems)
        click.echo(f"{domain}: {len(sets[domain].prompts)} prompts, {len(problems) or 'no'} problems")
        for problem in problems:
            where = f"{problem.question_id}: " if problem.question_id else ""
            click.echo(f"  {where}{problem.rule}: {problem.message}")
    if refused:
        raise UsageError(f"{refused} prompt sets are refused")
