"""`specwatch prompts`: the fixed prompts of each domain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.cli.output import Column, document_format_option, emit, format_option
from monitor.errors import UsageError

if TYPE_CHECKING:
    from monitor.prompts.importing import ImportedSet
    from monitor.prompts.sets import PromptSet

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory of DOMAIN.jsonl files.  [default: the sets that come with Specwatch]",
)


@click.group()
def prompts() -> None:
    """List, show, lint and import prompt sets."""


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
        rows = [{**{key: getattr(p, key) for key in keys}, "turns": list(p.turns), **p.request_keys} for p in found]
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for prompt in found:
        click.echo(f"── {prompt.question_id} ({prompt.sub_category})")
        for number, turn in enumerate(prompt.turns, start=1):
            click.echo(turn if len(prompt.turns) == 1 else f"[turn {number}] {turn}")
        for key, value in prompt.request_keys.items():
            click.echo(f"[{key}] {json.dumps(value, ensure_ascii=False)}")
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


@prompts.command(name="import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--out",
    "directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory that gets the DOMAIN.jsonl files; made when it is not there.",
)
@click.option("--domain", help="Put all prompts into one set of this domain; their categories become sub-categories.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=80, show_default=True, help="Most prompts of each set, the first."
)
@click.option("--force", is_flag=True, help="Overwrite sets that are there.")
@click.option("--keep-refused", is_flag=True, help="Write sets that the linter refuses as a whole, too.")
def import_(file: Path, directory: Path, domain: str | None, limit: int, *, force: bool, keep_refused: bool) -> None:
    """Make prompt sets of FILE, one of each of its categories.

    FILE is SPEED-Bench (.parquet), Spec-Bench or MT-Bench (.jsonl), ShareGPT (.json), or plain text (.txt). Prompts
    that ask the same as another or look random are left out; a set that would measure badly is not written. Exit code
    2 when any set is not.
    """
    from monitor.prompts.importing import domain_name, import_prompts
    from monitor.prompts.sets import write_prompt_set

    if domain is not None and domain != domain_name(domain):
        raise UsageError(f"--domain {domain!r} cannot name a file everywhere; {domain_name(domain)!r} can")
    imported = import_prompts(file, domain, limit)
    written = [found for found in imported if found.prompt_set.prompts and (keep_refused or not found.problems)]
    existing = [path for path in (directory / f"{found.prompt_set.domain}.jsonl" for found in written) if path.exists()]
    if existing and not force:
        raise UsageError(f"{existing[0]} is there already; nothing was written; --force overwrites it")
    directory.mkdir(parents=True, exist_ok=True)
    for found in imported:
        _report(found, str(write_prompt_set(found.prompt_set, directory)) if found in written else None)
    if refused := len(imported) - len(written):
        raise UsageError(
            f"{refused} of {len(imported)} sets are refused and not written; --domain NAME puts all categories into "
            "one set, --keep-refused writes them as they are"
        )


def _report(found: ImportedSet, path: str | None) -> None:
    click.echo(f"{found.prompt_set.domain}: {len(found.prompt_set.prompts)} prompts, {path or 'refused'}")
    for problem in found.problems:
        click.echo(f"  {problem.rule}: {problem.message}")
    for rule in dict.fromkeys(problem.rule for problem in found.left_out):
        of_rule = [problem for problem in found.left_out if problem.rule == rule]
        more = f" and {len(of_rule) - 1} more" if len(of_rule) > 1 else ""
        click.echo(f"  left out, {rule}: {of_rule[0].question_id} {of_rule[0].message}{more}")
