"""How a gate's verdict is shown: as a table, as JSON, as JUnit's XML, or as Markdown for a job's summary."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from monitor.cli.output import Column, local_time, markdown_text, table_text, wrapped
from monitor.core.format import NOTHING, agreement_text, change, count, figure, ratio_text
from monitor.core.statistics import geometric_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATS = ("table", "json", "junit", "markdown")
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FAILURES = ("fail", "inconclusive")
"""What JUnit calls a failure: it was measured. The rest are errors; none of them is a success."""


def report(document: Mapping[str, Any], format_: str) -> str:
    """The verdict's document in one of FORMATS, without a line break at the end."""
    match format_:
        case "json":
            return json.dumps(document, ensure_ascii=False, indent=2)
        case "junit":
            return junit(document)
        case "markdown":
            return markdown(document)
        case _:
            return table(document)


def verdict_word(verdict: str) -> str:
    """How text says a verdict; its stable word is for programs: not measurable."""
    return verdict.replace("_", " ")


def table(document: Mapping[str, Any]) -> str:
    head = [f"{verdict_word(document['verdict']).upper()} ({document['reason']}): {document['text']}"]
    head += [wrapped(label, *text.split()) for label, text in _facts(document)]
    rows = _rows(document)
    return "\n".join(head) + (f"\n\n{table_text(rows, _columns(document)).rstrip()}" if rows else "")


def markdown(document: Mapping[str, Any]) -> str:
    """Fit for a job summary: a heading with the verdict, a table of the domains, then what was compared."""
    rows = _rows(document)
    parts = [f"### Specwatch gate: {verdict_word(document['verdict'])}"]
    parts += [f"`{document['reason']}`: {_plain(document['text'])}"]
    parts += [markdown_text(rows, _columns(document, said_above=False))] if rows else []
    parts += ["\n".join(f"- {label}: {_plain(text)}" for label, text in _facts(document))]
    return "\n\n".join(parts)


def junit(document: Mapping[str, Any]) -> str:
    """One test case for each domain, for the mix and for required outputs, or one for a gate that measured nothing."""
    cases = _rows(document) or [{**document, "domain": "gate"}]
    suite = ElementTree.Element("testsuite", name="specwatch gate", timestamp=document["started_at"])
    suite.set("time", f"{_seconds(document):.3f}")
    failures = sum(case["verdict"] in _FAILURES for case in cases)
    errors = sum(case["verdict"] not in (*_FAILURES, "pass") for case in cases)
    for name, number in (("tests", len(cases)), ("failures", failures), ("errors", errors), ("skipped", 0)):
        suite.set(name, str(number))
    _properties(suite, document)
    for case in cases:
        element = ElementTree.SubElement(suite, "testcase", name=case["domain"], classname=_class_name(document))
        if case["verdict"] != "pass":
            kind = "failure" if case["verdict"] in _FAILURES else "error"
            text = _NOT_XML.sub("", case["text"])
            ElementTree.SubElement(element, kind, type=case["reason"], message=text).text = text
        else:
            ElementTree.SubElement(element, "system-out").text = _NOT_XML.sub("", case["text"])
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode")


def _properties(suite: ElementTree.Element, document: Mapping[str, Any]) -> None:
    """JUnit has no word for a waiver: each is a property of the suite, and no case becomes a success by it.

    What was promoted is another.
    """
    told = [(label, text) for label, text in _facts(document) if label in ("promoted", "waiver")]
    properties = ElementTree.SubElement(suite, "properties") if told else suite
    for label, text in told:
        ElementTree.SubElement(properties, "property", name=label, value=_NOT_XML.sub("", text))


def _class_name(document: Mapping[str, Any]) -> str:
    return f"specwatch.gate.{document['route'] or 'servers'}"


def _seconds(document: Mapping[str, Any]) -> float:
    began, ended = (datetime.fromisoformat(document[name]) for name in ("started_at", "finished_at"))
    return (ended - began).total_seconds()


def _facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    allowed = document["thresholds"]
    against = {"production": "production", "baseline": "the approved baseline", "url": "by address"}[
        document["against"]
    ]
    of_route = f" of {document['route']}" if document["route"] and document["against"] != "url" else ""
    metric, level = allowed["metric"].replace("_", " "), f"{allowed['interval_level'] * 100:g} %"
    valid = f"{document['prompts_valid']} of {count(document['prompts_total'], 'prompt')}"
    measured = f"{valid} in {_seconds(document):.0f} s" if document["prompts_total"] else "nothing"
    replica = document["reference"]["replica"]
    found = [
        ("candidate", document["candidate"]["replica"]),
        ("reference", f"{replica} ({against}{of_route})" if replica else f"{against}{of_route}"),
        ("differ in", document["difference"]),
        ("allowed", f"-{allowed['max_drop'] * 100:g}% of {metric}, told by {level} intervals"),
        ("measured", f"{measured}, judge version {document['judge_version']}"),
    ]
    found += _twin_facts(document["twin"], allowed) if document["twin"] else []
    found += [("warning", warning) for warning in document["warnings"]]
    found += [("promoted", document["promoted"]["text"])] if document["promoted"] else []
    return found + [("waiver", waived(document, waiver)) for waiver in document.get("waivers", ())]


def _twin_facts(twin: Mapping[str, Any], allowed: Mapping[str, Any]) -> list[tuple[str, str]]:
    required = allowed["require_lossless"]
    share = (
        f"{required * 100:g}% of its outputs" if isinstance(required, float) else "the outputs that it repeats itself"
    )
    also = "" if required is None else f", and {share}"
    found = [("twin", f"{twin['replica']} (plain): {allowed['min_speedup']:g} × its speed is asked{also}")]
    told = ((name, twin[name]["text"]) for name in ("speedup", "outputs"))
    return found + [(name, text.removeprefix(f"{name} ")) for name, text in told if text]


def waived(document: Mapping[str, Any], waiver: Mapping[str, Any]) -> str:
    """Whose waiver it is, of which gate, and that the verdict stands."""
    until = f"until {local_time(waiver['until'])} by {waiver['by']}: {waiver['reason']}"
    if waiver["gate"] == document.get("id"):
        return f"this gate is waived {until}; its verdict stands"
    before = waiver["waived"]
    return f"gate {waiver['gate']} ({verdict_word(before['verdict'])}, {before['reason']}) is waived {until}"


def _rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The domains, their mix where there are several, and the outputs where they decide."""
    mix, twin = document["mix"], document["twin"]
    rows = [dict(domain) for domain in document["domains"]]
    if len(rows) > 1 and mix["verdict"] is not None:
        rows.append({**mix, "domain": "mix", "prompts_valid": None, "per_prompt": [], "twin": twin})
    if twin and twin["outputs"]["verdict"] is not None:
        told = {name: twin["outputs"][name] for name in ("verdict", "reason", "text")}
        figures = dict.fromkeys(("change", "change_interval", "pairs", "prompts_valid", "source"))
        rows.append({**figures, **told, "domain": "outputs", "per_prompt": [], "twin": {**twin, "speedup": None}})
    return rows


def _columns(document: Mapping[str, Any], *, said_above: bool = True) -> list[Column]:
    metric = document["thresholds"]["metric"]

    def value(row: Mapping[str, Any], side: str) -> str:
        return figure(metric, geometric_mean(one[side] for one in row["per_prompt"]))

    def interval(row: Mapping[str, Any]) -> str:
        found = row["change_interval"]
        return NOTHING if found is None else f"{change(found[0])} to {change(found[1])}"

    return [
        Column("domain", lambda row: row["domain"]),
        Column("verdict", lambda row: verdict_word(row["verdict"])),
        Column("reason", lambda row: row["reason"]),
        Column("change", lambda row: change(row["change"]), right=True),
        Column("interval", interval, right=True),
        Column("reference", lambda row: value(row, "reference"), right=True),
        Column("candidate", lambda row: value(row, "candidate"), right=True),
        Column("pairs", lambda row: NOTHING if row["pairs"] is None else str(row["pairs"]), right=True),
        Column("prompts", _prompts, right=True),
        Column("source", lambda row: row["source"] or NOTHING, once=said_above),
        *(_twin_columns() if document["twin"] else []),
    ]


def _twin_columns() -> list[Column]:
    def speedup(row: Mapping[str, Any]) -> str:
        found = row["twin"] and row["twin"]["speedup"]
        return ratio_text(found if found and found["ratio"] else None)

    def same(row: Mapping[str, Any], pair: str) -> str:
        outputs = row["twin"] and row["twin"]["outputs"]
        return agreement_text(outputs and outputs[pair])

    return [
        Column("speedup", speedup, right=True),
        Column("same output", lambda row: same(row, "replica_and_twin"), right=True),
        Column("twin's own", lambda row: same(row, "twin_and_itself"), right=True),
    ]


def _prompts(row: Mapping[str, Any]) -> str:
    return NOTHING if row["prompts_valid"] is None else f"{row['prompts_valid']}/{row['prompts_total']}"


def _plain(text: str) -> str:
    """Text of servers as it may stand in Markdown: no markup of its own."""
    return re.sub(r"([<>`*_\[\]|])", r"\\\1", text)
