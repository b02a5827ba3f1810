"""The documents say what the program does: every command, option, figure, key and metric is named where people look."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from monitor.cli.reference import commands, reference_markdown

ROOT = Path(__file__).parents[2]
DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_command_line_reference_is_current() -> None:
    assert (ROOT / "docs/cli.md").read_text(encoding="utf-8") == reference_markdown(), "run `make docs`"


def test_every_command_and_option_is_in_the_command_line_reference() -> None:
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    found = list(commands())
    assert len(found) > 15
    for context, command in found:
        section = text.partition(f"# {context.command_path}\n")[2].partition("\n## specwatch")[0]
        assert section, context.command_path
        for option in command.params:
            if isinstance(option, click.Option):
                assert f"`{option.opts[0]}" in section, f"{context.command_path} {option.opts[0]}"


@pytest.mark.parametrize(
    ("context", "command"), [pytest.param(*found, id=found[0].command_path) for found in commands()]
)
def test_every_command_and_option_says_what_it_does(context: click.Context, command: click.Command) -> None:
    assert command.help
    for option in command.get_params(context):
        assert not isinstance(option, click.Option) or option.help, f"{context.command_path} {option.opts[0]}"


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text):
        assert (path.parent / target).exists(), f"{path.relative_to(ROOT)} links to {target}"


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_headings_lead_to_a_heading(path: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#\s]*)#([^)\s]+)\)", path.read_text(encoding="utf-8")):
        linked = path.parent / target if target else path
        headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in {slug(heading) for heading in headings}, f"{path.relative_to(ROOT)} links to {target}#{anchor}"


def slug(heading: str) -> str:
    """The anchor that renderers of Markdown give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_shown_in_documents_exist(path: Path) -> None:
    known = {context.command_path for context, _ in commands()}
    groups = {context.command_path for context, command in commands() if isinstance(command, click.Group)}
    for line in re.findall(r"`(specwatch [a-z][^`]*)`", path.read_text(encoding="utf-8")):
        words = line.split()
        name = " ".join(words[:2])
        assert name in known, f"{path.relative_to(ROOT)}: {line}"
        if name in groups and len(words) > 2 and words[2].isalpha() and words[2].islower():
            assert " ".join(words[:3]).split("|")[0] in known, f"{path.relative_to(ROOT)}: {line}"
