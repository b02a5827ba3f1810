"""How a figure is written, everywhere: tables, messages and pages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from monitor.core.leak import LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

NOTHING = "–"
"""Shown for a figure that was not measured."""


def figure(metric: str, value: float | None) -> str:
    """The value of a named figure with its unit; a dash when there is none."""
    if value is None:
        return NOTHING
    if metric.startswith(("acceptance_rate", "cached_ratio", "coverage", "merged_ratio")):
        return f"{value:.1%}"
    if metric.endswith("seconds_per_token"):
        return f"{value * 1000:.2f} ms"
    if "_seconds" in metric:
        return f"{value * 1000:.0f} ms" if value < 10 else f"{value:.1f} s"
    if metric.startswith(("tokens_per_second", "throughput")):
        return f"{value:.0f}"
    return f"{value:.2f}"


def both(metric: str, plain: float | None, speculative: float | None) -> str:
    """The figure without speculation and with it: 812→1490; a dash where neither is known."""
    return NOTHING if plain is speculative is None else f"{figure(metric, plain)}→{figure(metric, speculative)}"


def change(fraction: float | None, digits: int = 1) -> str:
    """A change in percent with its sign: -39.1%, +2.0%; what rounds to nothing has none: 0.0%."""
    if fraction is None:
        return NOTHING
    text = f"{fraction:+.{digits}%}"
    return text if any(digit in text for digit in "123456789") else text[1:]


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A number of things: 1 route, 2 routes; `plural` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def numbered(noun: str, ids: Sequence[int]) -> str:
    """Things by their numbers: `run 36`, `runs 31, 33, 34`, and where none is left out `runs 1-10`."""
    if len(ids) == 1:
        return f"{noun} {ids[0]}"
    if len(ids) > 2 and list(ids) == list(range(ids[0], ids[-1] + 1)):
        return f"{noun}s {ids[0]}-{ids[-1]}"
    return f"{noun}s {', '.join(map(str, ids))}"


def identity_text(identity: Mapping[str, Any]) -> str:
    """What was running, in short: its fingerprint or else engine and version, its drafter and K, as far as known."""
    version = " ".join(identity[name] for name in ("engine", "version") if identity[name])
    parts = [identity["fingerprint"] or version, identity["drafter"]]
    parts += [f"K {identity['k']}"] if identity["k"] is not None else []
    return ", ".join(filter(None, parts)) or "an identity that its servers did not show"


def replica_difference_text(difference: Mapping[str, Any]) -> str:
    """Which replica differs, and how much: only http://b: -24.1% (95 % interval …) of 2 other replicas."""
    low, high = map(change, difference["change_interval"])
    others = difference["others"]
    parts = [
        f"{'only ' if len(others) > 1 else ''}{difference['replica']}: {change(difference['change'])}",
        f"(95 % interval {low} to {high}) against {count(len(others), 'other replica')},",
        f"over {difference['prompts']} prompts, source {difference['source']}",
    ]
    return " ".join(parts)


def by_source(source: str | None) -> str:
    """What follows a figure outside a table: ` by request`; nothing where an earlier version did not keep it."""
    return f" by {source}" if source else ""


def context_text(bucket: Mapping[str, Any]) -> str:
    """Prompt tokens of a bucket, as its upper edge is not in it: <256, 256–1k, ≥16k."""
    low, high = bucket["from_tokens"], bucket["to_tokens"]
    if high is None:
        return f"≥{_tokens(low)}"
    return f"{_tokens(low)}–{_tokens(high)}" if low else f"<{_tokens(high)}"


def _tokens(number: int) -> str:
    return f"{number // 1024}k" if number >= 1024 else str(number)


def warm_parts(run: Mapping[str, Any]) -> list[str]:
    """The warm pass of a run's document, beside its cold one, in parts that a line may break between."""
    warm = run["warm"]
    if warm["invalid_reason"] is not None:
        return [f"INVALID: {warm['invalid_reason']}: {warm['invalid_detail']}"]
    parts = [
        f"AL {figure('acceptance_length', warm['acceptance_length'])} (prompt mean",
        f"{figure('acceptance_length', warm['acceptance_length_prompt_mean'])}){by_source(warm['source'])},",
    ]
    if warm["change"] is not None:
        low, high = map(change, warm["change_interval"])
        parts += [
            f"{change(warm['change'])} from the cold pass",
            f"(95 % interval {low} to {high}) over {count(warm['prompts'], 'prompt')},",
        ]
    cold = run["ttft_seconds"]["p50"]
    return [
        *parts,
        f"prompt tokens cached {cached_text(warm)},",
        f"TTFT {both('ttft_seconds', cold, warm['ttft_seconds']['p50'])}",
    ]


def cached_text(warm: Mapping[str, Any]) -> str:
    """Share of prompt tokens that the cache had, in the cold pass and in the warm one: 0.0%→93.8%."""
    return both("cached_ratio", warm["cold_cached_ratio"], warm["cached_ratio"])


def survival_text(shares: Sequence[float] | None) -> str:
    """Survival by position, as fractions: .62 .36 .21."""
    return " ".join(_fraction(share) for share in shares or ()) or NOTHING


def _fraction(share: float) -> str:
    """Three characters wide, so that columns of positions line up."""
    text = f"{share:.2f}"
    return "1.0" if text == "1.00" else text.removeprefix("0")


def run_line(run: Mapping[str, Any], verdicts: Sequence[Mapping[str, Any]], notes: Sequence[str] = ()) -> str:
    """A run's document in one line: figure, valid prompts of all, the worst change any rule saw, how it ended.

    Says `ok` only where a rule judged it; and why it was made, unless it was due.
    """
    parts = [f"run {run['id']}", f"{run['route']} · {run['domain']}"]
    parts += [f"AL {figure('acceptance_length', run['acceptance_length'])}{by_source(run['source'])}"]
    parts += [f"{run['prompts_valid']}/{run['prompts_total']}"]
    judged = [verdict for verdict in verdicts if verdict["change"] is not None]
    if judged:
        worst = min(judged, key=lambda verdict: float(verdict["change"]))
        parts.append(f"{change(worst['change'])} vs baseline {worst['baseline_id']}")
    parts += [run["reason"]] if run["reason"] != "scheduled" else []
    return "  ".join([*parts, _ended(run, verdicts, judged=bool(judged)), *notes])


def _ended(run: Mapping[str, Any], verdicts: Sequence[Mapping[str, Any]], *, judged: bool) -> str:
    if run["invalid_reason"] is not None:
        return str(run["invalid_reason"])
    outcomes = [verdict["outcome"] for verdict in verdicts]
    if not judged and not {"tripped", "confirmed"}.intersection(outcomes):
        return f"not judged: {verdicts[0]['reason'] if verdicts else 'no rule applies'}"
    return next((word for word in ("confirmed", "tripped") if word in outcomes), "ok")


def ratio_text(ratio: Mapping[str, Any] | None) -> str:
    """A ratio with its interval, where it has one: 1.84 [1.75, 1.93]."""
    if ratio is None:
        return NOTHING
    return figure("", ratio["ratio"]) + (f" {interval(ratio['low'], ratio['high'])}" if ratio["low"] else "")


def agreement_text(agreement: Mapping[str, Any] | None) -> str:
    """How many outputs are the same, of how many: 68/72."""
    return NOTHING if agreement is None else f"{agreement['same']}/{agreement['compared']}"


def leak_text(verdict: Mapping[str, Any]) -> str:
    """What a verdict of a slow leak has accumulated: 5.2 of 7 standard errors accumulated over 9 runs."""
    over = len(verdict.get("accumulated_over") or ())
    since = f" over {count(over, 'run')}" if over else ""
    return f"{verdict['accumulated']:.1f} of {LIMIT:g} standard errors accumulated{since}"


def floor_text(verdict: Mapping[str, Any]) -> str:
    """The figure that an absolute rule judged, of a break-even with what it was held against."""
    value, modelled = verdict["value"], verdict.get("break_even")
    if modelled is None:
        return f"{value:.1%}"
    return (
        f"{figure(verdict['metric'], value)} of break-even {verdict['below']:.2f} (modelled by sweep "
        f"{modelled['sweep_id']} at concurrency {modelled['concurrency']})"
    )


def speedup_line(speedup: Mapping[str, Any]) -> str:
    """A measured speedup's document in one line: the figure, or why there is none."""
    where = f"speedup of {speedup['route']} · {speedup['domain']} on {speedup['replica']}"
    if speedup["invalid_reason"] is not None:
        return f"{where}: {speedup['invalid_reason']}: {speedup['invalid_detail']}"
    return f"{where}: {ratio_text(speedup['speedup'])} at concurrency {speedup['concurrency']}"


def timeline(incident: Mapping[str, Any], time_text: Callable[[str], str]) -> str:
    """Its domains, then every message as it was sent, oldest first, and to whom, and what people did in between.

    `time_text` writes an ISO time.
    """
    domains = [_domain_line(name, domain, time_text) for name, domain in sorted(incident["domains"].items())]
    by_id = {silence["id"]: silence for silence in incident["silences"]}
    happened = [
        *((event["happened_at"], _event_lines(event, by_id, time_text)) for event in incident["events"]),
        *((act["done_at"], [_act_line(act, time_text)]) for act in incident["acts"]),
    ]
    happened.sort(key=lambda one: one[0])  # the store writes all of them in UTC
    silences = [_silence_line(silence, time_text) for silence in incident["silences"]]
    return "\n".join([*domains, *silences, *(line for _, lines in happened for line in ("", *lines))])


def _event_lines(
    event: Mapping[str, Any], silences: Mapping[int, Mapping[str, Any]], time_text: Callable[[str], str]
) -> list[str]:
    head = f"{time_text(event['happened_at'])}  {event['transition']}"
    if event["deliveries"] and all(delivery["state"] == "gathered" for delivery in event["deliveries"]):
        return [f"{head}  {event['domain']}: told in the next message, together with others"]
    told = [f"  told       {_delivery(delivery, silences, time_text)}" for delivery in event["deliveries"]]
    if "acknowledged_by" in event:
        return [f"{head} by {event['acknowledged_by']}: passed on", *told]
    return [head, event["text"], *told]


def _act_line(act: Mapping[str, Any], time_text: Callable[[str], str]) -> str:
    said = f": {act['text']}" if act["text"] else ""
    return f"{time_text(act['done_at'])}  {act['kind']} by {act['by']}{said}"


def silenced(silence: Mapping[str, Any]) -> str:
    """What it silences: `route chat-prod, page`."""
    labels = [f"label {name}={value}" for name, value in sorted(silence["labels"].items())]
    route = [f"route {silence['route']}"] if silence["route"] else []
    return ", ".join([*route, *labels, *([silence["severity"]] if silence["severity"] else [])]) or "everything"


def _silence_line(silence: Mapping[str, Any], time_text: Callable[[str], str]) -> str:
    until = _silence_end(silence, time_text)
    return f"  silence {silence['id']} of {silenced(silence)}, {until}, by {silence['by']}: {silence['reason']}"


def _silence_end(silence: Mapping[str, Any], time_text: Callable[[str], str]) -> str:
    early = " (ended early)" if silence["ended_at"] else ""
    return f"until {time_text(silence['ended_at'] or silence['ends_at'])}{early}"


def _domain_line(name: str, domain: Mapping[str, Any], time_text: Callable[[str], str]) -> str:
    joined, rejoined, left = (domain.get(name) for name in ("joined_at", "rejoined_at", "left_at"))
    parts = [f"{domain['severity']} by {domain['rule']}"]
    if worst := domain.get("worst"):
        value, before = (figure(worst["metric"], worst[key]) for key in ("value", "baseline_value"))
        seen = f", in {numbered('run', worst['run_ids'])}" if worst["run_ids"] else ""
        by = by_source(worst.get("source"))
        parts.append(f"at worst {change(worst['change'])}, {value} of {before}{by}{seen}")
    again = f", again {time_text(rejoined)} after it had left" if rejoined else ""
    parts += [f"joined {time_text(joined)}{again}"] if joined else []
    parts.append(f"left {time_text(left)}" if left else "still broken")
    return f"  {name}: {'; '.join(parts)}"


def _delivery(
    delivery: Mapping[str, Any], silences: Mapping[int, Mapping[str, Any]], time_text: Callable[[str], str]
) -> str:
    if delivery["state"] == "gathered":
        return f"{delivery['receiver']}: gathered, told in the next message"

    def held(silence_id: int) -> str:
        return f"by silence {silence_id} {_silence_end(silences[silence_id], time_text)}"

    if delivery["state"] == "silenced":
        return f"{delivery['receiver']}: not sent, silenced {held(delivery['silence_id'])}"
    silenced_next = f"silenced {held(delivery['next_silence_id'])}" if delivery.get("next_silence_id") else ""
    before = f", held {held(delivery['silence_id'])}" if delivery.get("silence_id") else ""
    if delivery.get("gathers_until"):
        gathers = f"not sent yet, gathers further domains until {time_text(delivery['gathers_until'])}"
        return f"{delivery['receiver']}: {gathers}" + (f", then {silenced_next}" if silenced_next else "")
    at = f" at {time_text(delivery['sent_at'])}" if delivery["sent_at"] else ""
    error = f": {delivery['last_error']}" if delivery["last_error"] else ""
    due = f"; next at {time_text(delivery['next_attempt_at'])}" if delivery.get("next_attempt_at") else ""
    due = f"; from now on {silenced_next}" if silenced_next else due
    tried = count(delivery["attempts"], "attempt")
    return f"{delivery['receiver']}: {delivery['state']}{at}{before}, {tried}{error}{due}"


def interval(low: float, high: float) -> str:
    """The two ends of an interval: [1.75, 1.93]."""
    return f"[{low:.2f}, {high:.2f}]"


def interval_plot(values: tuple[float, float, float], axis: tuple[float, float], width: int, mark: float) -> str:
    """An interval with its estimate on a logarithmic axis of `width` characters: ├──●──┤, with ┊ where `mark` lies.

    ◂ and ▸ stand where it goes on beyond the axis. All values are above 0.
    """
    begin, end = map(math.log, axis)
    scale = (width - 1) / ((end - begin) or 1)
    low, middle, high, at = (round((math.log(value) - begin) * scale) for value in (*values, mark))
    cells = [" "] * width
    if 0 <= at < width:
        cells[at] = "┊"
    first, last = (min(max(place, 0), width - 1) for place in (low, high))
    cells[first : last + 1] = ["─"] * (last + 1 - first)
    cells[first] = "├" if low >= 0 else "◂"
    cells[last] = "┤" if high < width else "▸"
    if 0 <= middle < width:
        cells[middle] = "●"
    return "".join(cells)
