"""The text of an incident of acceptance, for three in the morning. Pure.

The first line alone tells severity, route, domain, how much, since when and what to run.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from monitor.alerting.document import METRIC_NAMES, RUNBOOK, headline, next_lines
from monitor.alerting.domains import NAMED_AT_MOST, Told, named, others, ranked
from monitor.alerting.floors import back_above_floor, below_floor, floor_lines, is_floor, known_below
from monitor.alerting.layout import clock, duration, labelled, verbatim
from monitor.core.cost import cost_text, pace_text
from monitor.core.explanation import cause_texts, joint_cause_texts
from monitor.core.format import by_source, change, figure, leak_text, numbered, replica_difference_text
from monitor.core.incidents import Transition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

CAUSES_AT_MOST = 3
"""Of what moved, in a message; `specwatch explain` has them all."""


def alarm(document: Mapping[str, Any]) -> str:
    """One line that stands alone; of several domains it has the figures of the one that fell furthest."""
    joined = _joined(document)
    also = _NEWS.get(document["transition"], "")
    head = f"{document['severity'].upper()}{also} {document['route']} · {_who(document, joined)}"
    cost = document["cost_per_day"]
    told = fallen(document["verdict"], cost) if len(joined) == 1 else _worst_of(document, next(iter(joined)))
    ended_at = document["ended_at"]
    again = "" if ended_at is None else f"; again, {duration(ended_at, document['happened_at'])} after it was resolved"
    return headline(document, f"{head}: {told}, since {clock(min(joined.values()))}{again}")


_NEWS = {Transition.UPDATED.value: ", NOW ALSO", Transition.REOPENED.value: ", AGAIN"}


def _who(document: Mapping[str, Any], joined: Collection[str]) -> str:
    """The domains told of; of many that join others how many more, and how many they are now."""
    of, broken = document["route_domains"], document["domains"]
    if len(joined) <= NAMED_AT_MOST or set(joined) == set(broken):
        return named(joined, of)
    return f"{len(joined)} more, now {named(broken, of)}"


def fallen(verdict: Mapping[str, Any], cost_per_day: float | None = None) -> str:
    """How far the judged figure is below its baseline or its floor."""
    if is_floor(verdict):
        return below_floor(verdict, cost_per_day)
    leak = ", a slow leak" if verdict.get("accumulated") is not None else ""
    return f"{METRIC_NAMES[verdict['metric']]} {against_baseline(verdict)}{leak}"


def _worst_of(document: Mapping[str, Any], name: str) -> str:
    """What is held against a floor has no fall from a baseline on record."""
    worst = document["involved"][name]["worst"]
    if worst is None:
        return f"{known_below(document['involved'][name])} in {name}"
    return f"{METRIC_NAMES[worst['metric']]} of {name}, the worst, {against_baseline(worst)}"


def _joined(document: Mapping[str, Any]) -> dict[str, str]:
    """The domains that the message tells of → since; of several, the worst first."""
    joined: dict[str, str] = document["joined"]
    if len(joined) == 1:
        return joined
    return {name: joined[name] for name in worst_first(document["involved"], joined)}


def worst_first(involved: Mapping[str, Mapping[str, Any]], names: Collection[str]) -> list[str]:
    """Domains of an incident, what a floor broke before what fell from its baseline, and that by how far."""

    def fall(name: str) -> tuple[float, str]:
        domain = involved[name]
        unknown = -1.0 if domain.get("absolute") else 0.0
        return (unknown if domain["worst"] is None else domain["worst"]["change"], name)

    return sorted(names, key=fall)


def resolution(document: Mapping[str, Any]) -> str:
    """One line: what is well again, and after how long."""
    verdict, involved = document["verdict"], document["involved"]
    names = worst_first(involved, involved) or [document["domain"]]
    head = f"RESOLVED {document['route']} · {named(names, document['route_domains'])}"
    last = f" of {document['domain']}, the last to heal," if len(involved) > 1 else ""
    metric = METRIC_NAMES[verdict["metric"]]
    now = back_above_floor(verdict) if is_floor(verdict) else against_baseline(verdict)
    return headline(document, f"{head}: {metric}{last} is back at {now}, after {lasted(document)}")


def against_baseline(verdict: Mapping[str, Any]) -> str:
    """The value by its source, and how far it is from its baseline's."""
    change = verdict["change"]
    now, before = (figure(verdict["metric"], verdict[key]) for key in ("value", "baseline_value"))
    value = f"{now}{by_source(verdict.get('source'))}"
    if abs(change) < 0.005:
        return f"{value}, level with its baseline {before}"
    side = "below" if change < 0 else "above"
    return f"{value}, {abs(change):.0%} {side} its baseline {before}"


def firing_lines(document: Mapping[str, Any]) -> list[str]:
    """What is below the first line of an alarm."""
    if len(document["joined"]) > 1:
        return _gathered_lines(document)
    verdict = document["verdict"]
    steps = [
        f"specwatch explain --incident {document['incident_id']}",
        f"specwatch run show {verdict['run_ids'][-1]}",
        f"specwatch history {document['route']} --domain {document['domain']} --since 24h",
    ]
    if verdict.get("break_even") is not None:
        steps += [f"specwatch advise {document['route']}", "switch speculation off at this load, or draft fewer tokens"]
    elif document["last_bump"] is not None:
        steps.append("if the change above is yours: roll it back, or approve a new baseline")
    return [
        *impact_lines(document),
        *_evidence_lines(document),
        *_cause_lines(document),
        *labelled("last good", _last_good(document)),
        *labelled("changed", _bump(document["last_bump"])),
        *_others(document["other_changes"], document["unmeasured_domains"], document["last_bump"]),
        *(labelled("cost", cost_text(document["cost"])) if document["cost"] else []),
        *next_lines(document, steps),
        *verbatim("runbook", document["runbook_urls"] or [RUNBOOK]),
    ]


def _gathered_lines(document: Mapping[str, Any]) -> list[str]:
    """Of several domains that joined: each with its worst figure, and what holds for all of them."""
    involved, joined = document["involved"], _joined(document)
    each = [_told(name, involved[name]) for name in joined]
    rules = dict.fromkeys(involved[name]["rule"] for name in joined)
    changes = {name: fall for name, fall in document["other_changes"].items() if name not in joined}
    unmeasured = [name for name in document["unmeasured_domains"] if name not in joined]
    steps = [
        f"specwatch explain --incident {document['incident_id']}",
        f"specwatch history {document['route']} --since 24h",
    ]
    if document["last_bump"] is not None:
        steps.append("if the change above is yours: roll it back, or approve a new baseline")
    return [
        *impact_lines(document, of=document["domain"]),
        *ranked("joined", each),
        *labelled("rule", ", ".join(rules)),
        *_joint_cause_lines(document, joined),
        *labelled("changed", _bump(document["last_bump"])),
        *_others(changes, unmeasured, document["last_bump"]),
        *next_lines(document, steps),
        *verbatim("runbook", document["runbook_urls"] or [RUNBOOK]),
    ]


def resolved_lines(document: Mapping[str, Any]) -> list[str]:
    """What is below the first line of an end that was measured."""
    return [
        *_evidence_lines(document),
        *history_lines(document),
        *labelled("changed", _change_meanwhile(document)),
        *_others(document["other_changes"], [], None),
        *_replicas(document["replica_difference"]),
        *next_lines(document, []),
    ]


def _evidence_lines(document: Mapping[str, Any]) -> list[str]:
    verdict = document["verdict"]
    if is_floor(verdict):
        return floor_lines(document, verdict)
    low, high = verdict["change_interval"]
    return [
        *labelled(
            "evidence",
            f"{change(verdict['change'])} (95 % interval {change(low)} to {change(high)}) in geometric means "
            f"over {verdict['prompts']} prompts, {numbered('run', verdict['run_ids'])}, "
            f"baseline {verdict['baseline_id']}, source {document['source']}",
        ),
        *labelled("rule", f"{document['rule']}: {verdict['metric']} {_ruled(verdict)}; replica {document['replica']}"),
    ]


def _ruled(verdict: Mapping[str, Any]) -> str:
    if verdict.get("drop") is not None:
        return f"down {verdict['drop'] * 100:g}%"
    over = verdict.get("accumulated_over") or ()
    return f"leaking, {leak_text(verdict)}" + (f", {numbered('run', over)}" if over else "")


def impact_lines(document: Mapping[str, Any], of: str | None = None) -> list[str]:
    """What it does to whoever uses the route: whether answers are others, and how much longer they take.

    A document of 0.1, of which a page that is still open reminds, knows neither.
    `of`: the domain that both were measured in, where the message is about several.
    """
    where = "" if of is None else f" of {of}"
    told = [_answers(document.get("outputs"), where), *_pace(document.get("pace"), where)]
    return labelled("impact", "; ".join(told))


def _answers(outputs: Mapping[str, Any] | None, where: str) -> str:
    if outputs is None or outputs["points_at"] is None:
        return "speed and cost; speculative decoding by itself changes no answers"
    if outputs["points_at"] == "target":
        told = f"they changed on {outputs['changed']} of {outputs['compared']} prompts{where}"
        return f"speed and cost, and the answers may be others: {told}"
    told = f"they are as before on {outputs['compared'] - outputs['changed']} of {outputs['compared']} prompts{where}"
    return f"speed and cost, not the answers: {told}"


def _pace(pace: Mapping[str, Any] | None, where: str) -> list[str]:
    if pace is None:
        return ["how much slower cannot be told"]
    return [f"{pace_text(pace)}, measured on the probes{where}"]


def _cause_lines(document: Mapping[str, Any]) -> list[str]:
    """The surest first; where outputs point at nothing they are told by themselves."""
    if not document["looked_at"]:
        return []
    outputs = document["outputs"]
    lines = [line for text in cause_texts(document)[:CAUSES_AT_MOST] for line in labelled("cause", text)]
    if outputs is not None and outputs["points_at"] is None:
        told = f"changed on {outputs['changed']} of {outputs['compared']}: points at neither drafter nor target"
        varying = outputs.get("varying", 0.0)  # a document of 0.1 has none
        lines += labelled("outputs", f"{told}; the baseline's own runs vary on {varying:.0%}" if varying else told)
    return lines


def _joint_cause_lines(document: Mapping[str, Any], joined: Collection[str]) -> list[str]:
    """The best founded first, each with the domains that it was found in."""
    if not document["looked_at"]:
        return []
    texts = joint_cause_texts({name: document["joined_causes"].get(name, []) for name in joined})
    return [line for text in (texts or cause_texts(document))[:CAUSES_AT_MOST] for line in labelled("cause", text)]


def history_lines(document: Mapping[str, Any]) -> list[str]:
    """How long it lasted and what was broken, at worst how much."""
    opened, ended = clock(_last_opened(document)), clock(document["happened_at"])
    before = f"; first opened {clock(document['opened_at'])}" if document.get("reopened_at") else ""
    involved = document["involved"]
    parts = [_told(name, involved[name]) for name in worst_first(involved, involved)]
    return [*labelled("lasted", f"{lasted(document)}, {opened} to {ended}{before}"), *ranked("was broken", parts)]


def _told(name: str, domain: Mapping[str, Any]) -> Told:
    worst = domain["worst"]
    return Told(name, _worst(domain), None if worst is None else worst["change"])


def _worst(domain: Mapping[str, Any]) -> str:
    worst = domain["worst"]
    if worst is None:
        return f": {known_below(domain)}" if domain.get("absolute") else ""
    now, before = (figure(worst["metric"], worst[key]) for key in ("value", "baseline_value"))
    figures = f"{now} of {before}{by_source(worst.get('source'))}"
    return f", at worst {change(worst['change'])} ({figures}, {numbered('run', worst['run_ids'])})"


def _last_good(document: Mapping[str, Any]) -> str:
    good, baseline = document["last_good_run"], document["baseline_runs"]
    if good is not None:
        return f"run {good['run_id']} at {clock(good['finished_at'])}"
    if is_floor(document["verdict"]):
        return "none that this rule has judged"
    if baseline is None:
        return "none since its baseline was approved"
    runs, until = numbered("run", baseline["run_ids"]), clock(baseline["finished_at"])
    return f"none since its baseline was approved; the baseline's own {runs}, until {until}"


def _others(changes: Mapping[str, float], unmeasured: Sequence[str], bump: Mapping[str, Any] | None) -> list[str]:
    return others(changes, unmeasured, "not judged yet" if bump is None else "not judged since the change")


def _replicas(difference: Mapping[str, Any] | None) -> list[str]:
    return [] if difference is None else labelled("replicas", replica_difference_text(difference))


def _change_meanwhile(document: Mapping[str, Any]) -> str:
    """What was seen to change while it was open: what may have healed it."""
    bump = document["last_bump"]
    opened = _last_opened(document)
    if bump is None or datetime.fromisoformat(bump["noticed_at"]) < datetime.fromisoformat(opened):
        return "nothing was seen to change since it opened"
    return _bump(bump)


def _bump(bump: Mapping[str, Any] | None) -> str:
    if bump is None:
        return "no change of model, drafter, engine or K was seen on this route"
    changes = "; ".join(f"{name} {before} → {now}" for name, (before, now) in bump["changes"].items())
    return f"{changes}, noticed {clock(bump['noticed_at'])} on {bump['replica']}"


def lasted(document: Mapping[str, Any]) -> str:
    """From when it last opened to now, in two units."""
    return duration(_last_opened(document), document["happened_at"])


def _last_opened(document: Mapping[str, Any]) -> str:
    return str(document.get("reopened_at") or document["opened_at"])
