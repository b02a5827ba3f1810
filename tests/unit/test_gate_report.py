"""What a gate's reports are held to: JUnit's XML as Jenkins and GitLab read it, Markdown as it is rendered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from monitor.cli.gate_report import report
from monitor.core.gate import GateReason, Look
from monitor.core.gate_verdict import GateDomain, GateSide, GateThresholds, GateVerdict
from monitor.core.records import Identity
from tests.factories import START

if TYPE_CHECKING:
    from collections.abc import Mapping

NASTY = 'a <b>|x|</b> & "c" `d` *e* \x07 ]]>'
SCHEMA: Mapping[str | None, tuple[set[str], set[str], tuple[str, ...]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, ("testsuite",)),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {"skipped", "time", "timestamp", "hostname", "id", "package"},
        ("properties", "testcase", "system-out", "system-err"),
    ),
    "properties": (set(), set(), ("property",)),
    "property": ({"name", "value"}, set(), ()),
    "testcase": (
        {"name", "classname"},
        {"time", "file", "line"},
        ("skipped", "error", "failure", "system-out", "system-err"),
    ),
    "failure": (set(), {"type", "message"}, ()),
    "error": (set(), {"type", "message"}, ()),
    "system-out": (set(), set(), ()),
}
"""Of the common format: element → attributes it must have, those it may have, children in the order they may stand."""


def verdict_of(
    *reasons: GateReason,
    refusal: tuple[GateReason, str] | None = None,
    max_drop: float = 0.1,
    seen: tuple[Identity | None, Identity | None] = (Identity(version=NASTY), Identity(version="1")),
) -> dict[str, Any]:
    look = Look(2, 24, -0.01, 0.01, 0.03)
    domains = tuple(
        GateDomain(f"domain-{n}", reason, NASTY, 24, "h", "request", looks=(look,), values={"q": (2.0, 1.9)})
        for n, reason in enumerate(reasons)
    )
    return GateVerdict(
        route="chat-prod",
        against="production",
        candidate=GateSide("http://candidate:8000", seen[0]),
        reference=GateSide("http://vllm-0:8000", seen[1]),
        thresholds=GateThresholds("acceptance_length", max_drop, 12, 900.0, {one.domain: 1.0 for one in domains}),
        concurrency=4,
        sampling={},
        started_at=START,
        finished_at=START,
        domains=domains,
        refusal=refusal,
        warnings=(NASTY,),
    ).as_dict()


def check(element: ElementTree.Element) -> None:
    """Asserts that the element, and all in it, is as SCHEMA has it."""
    required, optional, children = SCHEMA[element.tag]
    assert required <= set(element.attrib) <= required | optional, element.tag
    places = [children.index(child.tag) for child in element]
    assert places == sorted(places), element.tag
    for child in element:
        check(child)


def test_what_was_allowed_is_told_as_it_was_asked_and_not_rounded() -> None:
    document = verdict_of(GateReason.NO_REGRESSION, max_drop=0.025)
    assert document["text"] == "domain-0 has not lost 2.5% of acceptance length"
    assert "  allowed   -2.5% of acceptance length, told by 97.5 % intervals\n" in report(document, "table")
    assert "-7% of acceptance length" in report(verdict_of(GateReason.REGRESSION, max_drop=0.07), "table")


def test_a_gate_that_measured_nothing_says_so_in_words() -> None:
    document = verdict_of(refusal=(GateReason.SAME_SERVER, "both are one"))
    told = {"candidate": {"replica": "http://a:8000", "identity": None}, "difference": "unknown: …", "warnings": []}
    assert report(document | told, "table") == (
        "NOT MEASURABLE (same_server): both are one\n"
        "  candidate http://a:8000\n"
        "  reference http://vllm-0:8000 (production of chat-prod)\n"
        "  differ in unknown: …\n"
        "  allowed   -10% of acceptance length, told by 97.5 % intervals\n"
        "  measured  nothing, judge version 2"
    )
    assert report(document, "markdown").startswith(
        "### Specwatch gate: not measurable\n\n`same_server`: both are one\n"
    )


def test_a_baseline_as_reference_has_no_address() -> None:
    document = verdict_of(GateReason.NO_REGRESSION)
    document |= {"against": "baseline", "reference": {"replica": None, "identity": None}}
    assert "\n- reference: the approved baseline of chat-prod\n" in report(document, "markdown")


@pytest.mark.parametrize(
    ("candidate", "reference", "told"),
    [
        (
            Identity(version="1"),
            Identity(version="1"),
            "nothing that the servers show; overwritten weights would not show",
        ),
        (Identity(version="2"), Identity(version="1"), "version 1 → 2"),
        (None, Identity(version="1"), "unknown: candidate was not seen"),
        (None, None, "unknown: candidate and reference were not seen"),
    ],
)
def test_what_differs_is_told_in_words(candidate: Identity | None, reference: Identity | None, told: str) -> None:
    found = verdict_of(GateReason.NO_REGRESSION, seen=(candidate, reference))
    assert found["difference"] == told


@pytest.mark.parametrize("reason", GateReason)
def test_junit_keeps_its_schema_and_counts_whatever_the_verdict(reason: GateReason) -> None:
    root = ElementTree.fromstring(report(verdict_of(reason, GateReason.NO_REGRESSION), "junit"))
    assert root.tag == "testsuites"
    check(root)
    (suite,) = root
    cases = suite.findall("testcase")
    counted = (len(cases), *(len(suite.findall(f"testcase/{kind}")) for kind in ("failure", "error")))
    assert counted == tuple(int(suite.attrib[name]) for name in ("tests", "failures", "errors"))
    assert (len(cases[0].findall("failure") + cases[0].findall("error")) == 0) == (reason is GateReason.NO_REGRESSION)


def test_a_gate_that_was_refused_is_one_case_that_is_an_error() -> None:
    root = ElementTree.fromstring(report(verdict_of(refusal=(GateReason.SAME_SERVER, NASTY)), "junit"))
    check(root)
    assert [case.attrib["name"] for case in root.iter("testcase")] == ["gate"]
    assert [error.attrib["type"] for error in root.iter("error")] == ["same_server"]


def test_markdown_renders_as_a_heading_a_table_and_a_list_and_nothing_of_a_servers_text_is_markup() -> None:
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    tokens = parser.parse(report(verdict_of(GateReason.REGRESSION, GateReason.NO_REGRESSION), "markdown"))
    kinds = [token.type for token in tokens]
    assert (kinds.count("heading_open"), kinds.count("table_open"), kinds.count("bullet_list_open")) == (1, 1, 1)
    assert kinds.count("tr_open") == 4  # the head, two domains and their mix
    columns = kinds.count("th_open")
    assert kinds.count("td_open") == 3 * columns
    inline = [child.type for token in tokens if token.children for child in token.children]
    assert not {"html_inline", "html_block", "em_open", "strong_open", "link_open"} & {*inline, *kinds}
