"""The documents say what the program does: every command, option, figure, key and metric is named where people look."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from monitor import __version__
from monitor.alerting.alertmanager import webhook_body
from monitor.alerting.bump_message import bump_event
from monitor.alerting.document import head
from monitor.alerting.message import closed_event, incident_event
from monitor.cli import noise as noise_command
from monitor.cli.probe_report import document_of
from monitor.cli.reference import commands, reference_markdown
from monitor.core import promises
from monitor.core.bumps import DomainAfter
from monitor.core.cause import Cause
from monitor.core.comparison import Comparison, PromptChange, SideName
from monitor.core.cost import lost_money
from monitor.core.evidence import OrganicMove
from monitor.core.explanation import explained
from monitor.core.figures import Aggregate
from monitor.core.gate import EXIT_CODES, GateReason, Look
from monitor.core.gate_verdict import GateDomain, GateSide, GateThresholds, GateVerdict
from monitor.core.judge import Verdict
from monitor.core.noise import Rate
from monitor.core.outputs import Agreement, Changes, Outputs
from monitor.core.records import Identity, Regime, Sample, Sampling
from monitor.core.speedup import Speedup, modelled
from monitor.core.spread import Spread
from monitor.engines import counts
from monitor.engines.failures import ADVICE
from monitor.exchange import profile
from monitor.probing import outcome
from monitor.service import explaining, prober
from monitor.store import (
    acts,
    baselines,
    bumps,
    comparisons,
    history,
    identities,
    incidents,
    outbox,
    references,
    silences,
)
from monitor.store.runs import run_document
from monitor.store.snapshot import Snapshot
from monitor.web.metrics import render

if TYPE_CHECKING:
    from collections.abc import Callable

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


def test_every_command_and_option_says_what_it_does() -> None:
    for context, command in commands():
        assert command.help, context.command_path
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


def documented(path: str) -> set[str]:
    """The words in back quotes or in code of a document."""
    text = (ROOT / path).read_text(encoding="utf-8")
    blocks = re.findall(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return set(re.findall(r"[A-Za-z_][\w]*", " ".join([*blocks, *re.findall(r"`([^`]+)`", prose)])))


def keys_of(function: Callable[..., object]) -> set[str]:
    """The keys of the dictionaries that a function writes out."""
    return set(re.findall(r'"(\w+)":', inspect.getsource(function)))


@pytest.mark.parametrize(
    "function",
    [
        Aggregate.as_dict,
        Sample.as_dict,
        Identity.as_dict,
        Sampling.as_dict,
        Verdict.as_dict,
        run_document,
        history._document,
        incidents.incident_document,
        incidents.get_incident,
        outbox.delivery_document,
        acts._document,
        silences.silence_document,
        head,
        incident_event,
        closed_event,
        bump_event,
        DomainAfter.as_dict,
        bumps.announcement_document,
        bumps._document,
        identities.bump_document,
        Cause.as_dict,
        OrganicMove.as_dict,
        explained,
        lost_money,
        explaining.explain,
        explaining.recomputed,
        explaining._prompt,
        Speedup.as_dict,
        modelled,
        Agreement.as_dict,
        Spread.as_dict,
        Rate.as_dict,
        promises.promises,
        promises.detections,
        promises.keeping_settings,
        promises._fewest_prompts,
        noise_command._document,
        noise_command._domain_document,
        Outputs.as_dict,
        Changes.as_dict,
        incidents._domain_document,
        baselines._document,
        baselines._metric,
        document_of,
        references._document,
        GateVerdict.as_dict,
        GateDomain.as_dict,
        GateSide.as_dict,
        GateThresholds.as_dict,
        Look.as_dict,
        Comparison.as_dict,
        PromptChange.as_dict,
        SideName.as_dict,
        comparisons.compared,
        comparisons._part,
        comparisons._document,
        comparisons._left_out,
        baselines._numbered,
        profile.speculation_profile,
        profile._validation,
    ],
    ids=lambda function: f"{function.__module__}.{function.__qualname__}",
)
def test_every_key_of_the_json_is_documented(function: Callable[..., object]) -> None:
    keys = keys_of(function)
    assert keys
    assert keys - documented("docs/json.md") == set()


def test_every_figure_of_a_run_is_defined() -> None:
    assert keys_of(Aggregate.as_dict) - {"domain", "source", "p50", "p95"} - documented("docs/figures.md") == set()
    assert {field.name for field in fields(Regime)} - documented("docs/figures.md") == set()


def test_every_reason_for_an_invalid_sample_or_run_is_explained() -> None:
    reasons = {*ADVICE, outcome.IDENTITY_CHANGED}
    for module in (counts, outcome, prober):
        source = inspect.getsource(module)
        reasons |= set(
            re.findall(r'(?:return |invalid_reason=|prompt_set, |^ +)"([a-z]+(?:_[a-z]+)*)", ', source, re.MULTILINE)
        )
    assert {"too_short", "no_speculation", "identity_changed_during_run", "busy"} <= reasons
    assert reasons - documented("docs/figures.md") == set()


def test_every_reason_and_exit_code_of_a_gate_is_explained() -> None:
    text = (ROOT / "docs/gate.md").read_text(encoding="utf-8")
    assert [reason.value for reason in GateReason if f"`{reason.value}`" not in text] == []
    for decision, code in EXIT_CODES.items():
        assert f"| {code} | `{decision.value}` |" in text


def test_every_metric_is_listed() -> None:
    page = render(Snapshot([], [], {}, [], {}), {}, {}).decode()
    named = {name.removesuffix("_total") for name in documented("docs/operations.md")}
    families = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))
    assert "specwatch_deliveries" in families
    assert {name.removesuffix("_total") for name in families} - named == set()


def test_every_key_of_the_web_hook_is_shown() -> None:
    text = (ROOT / "docs/alerts.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    shown = json.loads(example)
    event = {
        **dict.fromkeys(("route", "summary", "text", "domain", "happened_at", "opened_at"), ""),
        "labels": {"team": "chat"},
        "domains": ["coding"],
        "severity": "page",
        "transition": "opened",
        "source": "request",
        "link": None,
    }
    body = webhook_body("hook", 1, event, None)
    assert list(shown) == list(body)
    assert list(shown["alerts"][0]) == list(body["alerts"][0])
    assert set(shown["commonLabels"]) == set(body["commonLabels"])
    assert set(shown["commonAnnotations"]) == set(body["commonAnnotations"])


def test_every_decision_says_its_question_what_was_decided_and_what_follows() -> None:
    decisions = sorted((ROOT / "docs/adr").glob("*.md"))
    assert [path.name[:4] for path in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    for path in decisions:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {int(path.name[:4])}. ")
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Question", "Decision", "Consequences"], path.name


def test_the_changelog_has_this_version() -> None:
    assert f"\n## {__version__}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
