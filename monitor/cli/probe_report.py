"""What `specwatch probe` shows: one table, one JSON document, warnings, or why nothing could be measured."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import Column, emit
from monitor.core.format import NOTHING, both, cached_text, change, context_text, figure, survival_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monitor.core.records import Run

SURVIVAL_SHOWN = 4
"""Positions in the table, which has room for them in 80 columns; JSON has all."""


def show(runs: Sequence[Run], format_: str) -> None:
    """Prints the result. Raises TargetError when no sample of any run is valid."""
    from monitor.errors import TargetError

    document = document_of(runs)
    measured = any(domain["prompts_valid"] for domain in document["domains"])
    if format_ == "json":
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
    elif measured:
        emit(document["domains"], COLUMNS, format_, "")
        _show_contexts(document["domains"], format_)
        _show_warm(document["domains"], format_)
    if not measured:
        first = next(run for run in runs if run.invalid_reason)
        raise TargetError(first.invalid_reason or "", first.invalid_detail or "")
    if format_ in ("table", "markdown"):
        click.echo(f"\n{_identity_line(document['identity'])}")
    for warning in document["warnings"]:
        click.echo(f"warning: {warning}", err=True)


def _show_contexts(domains: Sequence[Mapping[str, Any]], format_: str) -> None:
    """Where the prompts of a domain are of several lengths: acceptance may fall with the longer ones alone."""
    rows = [
        {"domain": domain["domain"], **bucket}
        for domain in domains
        if len(domain["by_context"]) > 1
        for bucket in domain["by_context"]
    ]
    if rows and format_ in ("table", "markdown"):
        click.echo()
        emit(rows, CONTEXT_COLUMNS, format_, "")


def _show_warm(domains: Sequence[Mapping[str, Any]], format_: str) -> None:
    """The warm pass of each domain beside its cold one, where there was a valid one; a warning says why not."""
    rows = [domain for domain in domains if domain["warm"] is not None and domain["warm"]["valid"]]
    if rows and format_ in ("table", "markdown"):
        click.echo()
        emit(rows, WARM_COLUMNS, format_, "")


def document_of(runs: Sequence[Run]) -> dict[str, Any]:
    """The JSON of a one-shot probe (docs/json.md): identity, figures by domain, raw counts by prompt, warnings."""
    from monitor.core.contexts import by_context
    from monitor.core.figures import aggregate

    return {
        "identity": runs[0].identity.as_dict(),
        "replica": runs[0].replica,
        "concurrency": runs[0].concurrency,
        "sampling": runs[0].sampling.as_dict(),
        "domains": [
            {
                **aggregate(run.domain, run.samples).as_dict(),
                "prompt_set_hash": run.prompt_set_hash,
                "started_at": run.started_at.isoformat(),
                "finished_at": run.finished_at.isoformat(),
                "invalid_reason": run.invalid_reason,
                "invalid_detail": run.invalid_detail,
                "acceptance_by_source": dict(run.acceptance_by_source),
                "by_context": by_context(run.samples),
                "warm": None if run.warm is None else run.warm.as_dict(),
            }
            for run in runs
        ],
        "samples": [{"domain": run.domain, **sample.as_dict()} for run in runs for sample in run.samples],
        "warnings": _warnings(runs),
    }


def _warnings(runs: Sequence[Run]) -> list[str]:
    """Those of every run once, those of some with their domain, and why prompts are invalid."""
    everywhere = [w for w in runs[0].warnings if all(w in run.warnings for run in runs)]
    found = list(everywhere)
    for run in runs:
        found += [f"{run.domain}: {warning}" for warning in run.warnings if warning not in everywhere]
        invalid = [sample for sample in run.samples if not sample.valid]
        if invalid:
            why = f"{invalid[0].invalid_reason}: {invalid[0].invalid_detail}"
            found.append(f"{run.domain}: {len(invalid)} of {len(run.samples)} prompts are invalid, the first {why}")
        if run.warm is not None and run.warm.invalid_reason is not None:
            why = f"{run.warm.invalid_reason}: {run.warm.invalid_detail}"
            found.append(f"{run.domain}: the warm pass is invalid: {why}")
    return found


def _identity_line(identity: Mapping[str, Any]) -> str:
    names = ("engine", "version", "model", "root", "method", "drafter", "k", "fingerprint")
    known = [f"{'K' if name == 'k' else name} {identity[name]}" for name in names if identity[name] is not None]
    return textwrap.fill(" · ".join(known), 80, break_long_words=False, break_on_hyphens=False) or "identity unknown"


def _lengths(row: Mapping[str, Any]) -> str:
    pooled, mean = row["acceptance_length"], row["acceptance_length_prompt_mean"]
    return NOTHING if pooled is None else f"{figure('', pooled)} ({figure('', mean)})"


def _survival(row: Mapping[str, Any]) -> str:
    shares = row["survival"]
    return survival_text(shares[:SURVIVAL_SHOWN]) + (" …" if len(shares) > SURVIVAL_SHOWN else "")


def _warm_lengths(row: Mapping[str, Any]) -> str:
    return both("acceptance_length", row["acceptance_length"], row["warm"]["acceptance_length"])


def _warm_ttft(row: Mapping[str, Any]) -> str:
    return both("ttft_seconds", row["ttft_seconds"]["p50"], row["warm"]["ttft_seconds"]["p50"])


COLUMNS = (
    Column("domain", lambda row: str(row["domain"])),
    Column("AL (mean)", _lengths, right=True),
    Column("survival", _survival),
    Column("AR", lambda row: figure("acceptance_rate", row["acceptance_rate"]), right=True),
    Column("tok/step", lambda row: figure("tokens_per_step", row["tokens_per_step"]), right=True),
    Column("tok/s", lambda row: figure("tokens_per_second", row["tokens_per_second"]["p50"]), right=True),
    Column("TTFT", lambda row: figure("ttft_seconds", row["ttft_seconds"]["p50"]), right=True),
    Column("valid", lambda row: f"{row['prompts_valid']}/{row['prompts_total']}", right=True, once=True),
    Column("source", lambda row: row["source"] or NOTHING, once=True),
)
WARM_COLUMNS = (
    Column("domain", lambda row: str(row["domain"])),
    Column("AL cold→warm", _warm_lengths, right=True),
    Column("change", lambda row: change(row["warm"]["change"]), right=True),
    Column("cached", lambda row: cached_text(row["warm"]), right=True),
    Column("TTFT", _warm_ttft, right=True),
    Column("valid", lambda row: f"{row['warm']['prompts_valid']}/{row['warm']['prompts_total']}", right=True),
    Column("source", lambda row: row["warm"]["source"] or NOTHING, once=True),
)
CONTEXT_COLUMNS = (
    Column("domain", lambda row: str(row["domain"])),
    Column("prompt tokens", context_text, right=True),
    Column("AL (mean)", _lengths, right=True),
    Column("survival", _survival),
    Column("AR", lambda row: figure("acceptance_rate", row["acceptance_rate"]), right=True),
    Column("prompts", lambda row: str(row["prompts"]), right=True),
    Column("source", lambda row: row["source"] or NOTHING, once=True),
)
