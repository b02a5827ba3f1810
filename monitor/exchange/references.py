"""Reference lines: acceptance that another tool measured, read from its result file; shown, and never judged by."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import yaml

from monitor.errors import UsageError
from monitor.exchange.files import read_json, read_json_lines, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

EXPECTED = (
    "the result of vllm bench serve with --save-result (.json with spec_decode_acceptance_length), AIPerf's "
    "profile_export.jsonl (records with spec_decode_acceptance), acceptance.csv of speculators, InferenceX's golden "
    "acceptance lengths (.yaml), or speculation_profile.json"
)
IDENTITY_TOLERANCE = 0.02
"""Most that AL may differ from 1 + Σ survival; InferenceX rounds to 0.01, NVIDIA's own check allows 0.02."""
POSITION = "acceptance_at_pos_"


@dataclass(frozen=True)
class ReferenceLine:
    """One figure of the file: AL with the bonus token, as everywhere here. What the file does not say is None."""

    tool: str
    acceptance_length: float
    domain: str | None = None
    model: str | None = None
    label: str | None = None
    k: int | None = None
    acceptance_rate: float | None = None
    survival: tuple[float, ...] = ()
    steps: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "survival": list(self.survival)}


def read_references(path: Path, domain: str | None = None) -> list[ReferenceLine]:
    """The lines of the file; `domain` says what a file measured that names none itself.

    Raises UsageError for a file in no known shape, one without acceptance, and figures that cannot be.
    """
    reader = READERS.get(path.suffix.casefold())
    if reader is None:
        raise UsageError(f"{path}: the name says nothing of its shape; expected is {EXPECTED}")
    try:
        lines = list(reader(path, domain))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: {error!r}; expected is {EXPECTED}") from None
    if not lines:
        raise UsageError(f"{path}: says nothing of acceptance; expected is {EXPECTED}")
    for line in lines:
        if not 1 <= line.acceptance_length <= (float("inf") if line.k is None else line.k + 1):
            raise UsageError(f"{path}: an acceptance length of {line.acceptance_length} cannot be with K {line.k}")
        if line.acceptance_rate is not None and not 0 <= line.acceptance_rate <= 1:
            raise UsageError(f"{path}: an acceptance rate of {line.acceptance_rate:.0%} cannot be")
    return lines


def _json(path: Path, domain: str | None) -> Iterator[ReferenceLine]:
    document = read_json(path)
    if "spec_decode_acceptance_length" in document:
        yield _vllm_bench(document, domain)
    elif "marginal_accept_rates" in document:
        yield from _speculation_profile(document, domain)


def _vllm_bench(document: Mapping[str, Any], domain: str | None) -> ReferenceLine:
    """`vllm bench serve`: the rate is a percentage, the rates by position are survival."""
    survival = tuple(map(float, document.get("spec_decode_per_position_acceptance_rates", ())))
    concurrency = document.get("max_concurrency")
    return ReferenceLine(
        tool="vllm bench serve",
        domain=domain,
        model=_text(document.get("model_id")),
        label=None if concurrency is None else f"concurrency {concurrency}",
        k=len(survival) or None,
        acceptance_length=float(document["spec_decode_acceptance_length"]),
        acceptance_rate=float(document["spec_decode_acceptance_rate"]) / 100,
        survival=survival,
        steps=int(document["spec_decode_num_drafts"]),
    )


def _speculation_profile(document: Mapping[str, Any], domain: str | None) -> Iterator[ReferenceLine]:
    """NVIDIA's profile: the whole, then its categories; one that says it was not measured has no figure."""
    if not document["measured"]:
        return
    whole = ReferenceLine(
        tool="speculation_profile.json",
        domain=domain,
        model=_described(document.get("target_model")),
        label=_text(document.get("method")),
        k=int(document["num_speculative_tokens"]),
        acceptance_length=float(document["mean_accept_length"]),
        survival=tuple(map(float, document["marginal_accept_rates"])),
    )
    yield whole
    for category, figures in (document.get("per_category") or {}).items():
        length = float(figures["mean_accept_length"])
        yield replace(whole, acceptance_length=length, domain=category, survival=())


def _described(value: Any) -> str | None:
    """A name, or the first text of an object that describes it: its keys are nowhere laid down."""
    if isinstance(value, dict):
        return next((found for found in value.values() if isinstance(found, str)), None)
    return _text(value)


def _aiperf(path: Path, domain: str | None) -> Iterator[ReferenceLine]:
    """AIPerf's records of single requests, pooled over steps; its warm-up does not count."""
    found = [
        record["spec_decode_acceptance"]
        for _, record in read_json_lines(path)
        if record.get("spec_decode_acceptance") and record["metadata"].get("benchmark_phase", "profiling") != "warmup"
    ]
    steps = sum(int(record["num_spec_steps"]) for record in found)
    if not steps:
        return
    histogram: Counter[int] = Counter()
    for record in found:
        histogram.update({int(accepted): int(count) for accepted, count in record["acceptance_histogram"].items()})
    lengths = {record.get("num_spec_tokens") for record in found}
    accepted = sum(int(record["num_accepted_draft_tokens"]) for record in found)
    drafted = sum(int(record["num_draft_tokens"]) for record in found)
    yield ReferenceLine(
        tool="AIPerf",
        domain=domain,
        label=", ".join(sorted({str(record["engine"]) for record in found})),
        k=lengths.pop() if len(lengths) == 1 else None,
        acceptance_length=1 + accepted / steps,
        acceptance_rate=accepted / drafted if drafted else None,
        survival=tuple(
            sum(count for length, count in histogram.items() if length > position) / steps
            for position in range(max(histogram, default=0))
        ),
        steps=steps,
    )


def _speculators(path: Path, _domain: str | None) -> Iterator[ReferenceLine]:
    """`acceptance.csv`: a subset on each line; of `speedbench/qualitative/coding` the last part is the domain."""
    for row in csv.DictReader(io.StringIO(read_text(path))):
        drafted, accepted = float(row["num_draft_tokens"]), float(row["num_accepted_tokens"])
        positions = [name for name in row if name and name.startswith(POSITION)]
        survival = tuple(float(row[f"{POSITION}{position}"]) for position in range(len(positions)))
        length = float(row["acceptance_length"])
        # Until September 2026 its columns by position were divided by the number of data-parallel engines.
        consistent = abs(1 + sum(survival) - length) <= IDENTITY_TOLERANCE
        yield ReferenceLine(
            tool="speculators",
            domain=row["subset"].rpartition("/")[2],
            k=len(positions) or None,
            acceptance_length=length,
            acceptance_rate=accepted / drafted if drafted else None,
            survival=survival if consistent else (),
            steps=int(float(row["num_drafts"])),
        )


def _inferencex(path: Path, domain: str | None) -> Iterator[ReferenceLine]:
    """Model → thinking mode → K → AL; all were measured on the coding prompts of SPEED-Bench."""
    try:
        document = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise ValueError(f"is no YAML: {error}") from None
    for model, modes in document.items():
        for mode, lengths in modes.items():
            for k, length in lengths.items():
                yield ReferenceLine(
                    tool="InferenceX",
                    domain=domain or "coding",
                    model=str(model),
                    label=str(mode),
                    k=int(k),
                    acceptance_length=float(length),
                )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


READERS: dict[str, Callable[[Path, str | None], Iterator[ReferenceLine]]] = {
    ".json": _json,
    ".jsonl": _aiperf,
    ".csv": _speculators,
    ".yaml": _inferencex,
    ".yml": _inferencex,
}
