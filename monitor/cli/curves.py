"""`specwatch sweeps`, and how a sweep's curve is shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import RECORD_ID, Column, emit, format_option, time_column
from monitor.core.format import NOTHING, figure, interval_plot, ratio_text
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from monitor.cli.context import Context

PLOT_WIDTH = 20
WIDEST_RATIO = 4.0
"""The plot ends there, so that one wild interval does not squeeze the others."""


@click.command()
@click.argument("sweep_id", metavar="[ID]", type=RECORD_ID, required=False)
@click.option("--route", help="Only those of this route.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many.")
@format_option
@click.pass_obj
def sweeps(context: Context, sweep_id: int | None, route: str | None, limit: int, format_: str) -> None:
    """List the saved sweeps, newest first, or show the curve of one."""
    from monitor.store.sweeps import get_sweep, list_sweeps

    with context.database() as database, database.transaction() as connection:
        if sweep_id is None:
            rows = list_sweeps(connection, route, limit)
            emit(rows, LIST_COLUMNS, format_, "no sweeps yet; 'specwatch sweep --save' keeps them")
            return
        found = get_sweep(connection, sweep_id)
    if found is None:
        raise UsageError(f"there is no sweep {sweep_id}; see 'specwatch sweeps'")
    show_sweeps([found], format_)


LIST_COLUMNS = [
    Column("sweep", lambda row: str(row["id"]), right=True),
    time_column("finished", "finished_at"),
    Column("route", lambda row: row["route"] or NOTHING, if_any=True),
    Column("model", lambda row: row["model"] or NOTHING),
    Column("speculative", lambda row: row["label"]),
    Column("result", lambda row: crossover_text(row), under=True),
]


def show_sweeps(documents: Sequence[Mapping[str, Any]], format_: str) -> None:
    """Sweeps of one plain server: each as its curve, several also side by side."""
    if format_ == "json":
        click.echo(json.dumps(list(documents), ensure_ascii=False, indent=2))
        return
    rows = [{"label": document["label"], **point} for document in documents for point in document["points"]]
    if format_ == "csv":
        emit(rows, [], format_, "")
        return
    for document in documents:
        click.echo(_heading(document))
        emit(document["points"], _point_columns(document["points"]), format_, "")
        click.echo(f"\n{crossover_text(document)}\n")
        for warning in dict.fromkeys(_warnings(document)):
            click.echo(f"warning: {warning}", err=True)
    if len(documents) > 1:
        click.echo("speedup side by side, measured\n")
        emit(_side_by_side_rows(documents), _comparison_columns(documents), format_, "")


def _heading(document: Mapping[str, Any]) -> str:
    points = document["points"]
    plain, speculative = document["plain_replica"], document["speculative_replica"]
    order = "passes interleaved" if document["interleaved"] else "servers one after the other"
    prompts = points[0]["plain"]["prompts_total"] // max(1, points[0]["repeats"]) if points else 0
    k = document["speculative_identity"]["k"]
    names = f"{document['label']}" + (f" ({speculative})" if speculative != document["label"] else "")
    return (
        f"{names} against plain {plain}\n"
        f"model {document['model']}, K {NOTHING if k is None else k}, from {prompts} prompts, "
        f"{points[0]['repeats'] if points else 0} passes a point, {order};\n"
        "ratios are measured, with 95 % intervals"
    )


def crossover_text(document: Mapping[str, Any]) -> str:
    """One sentence: where speculation stops paying, with its interval."""
    found, points = document["crossover"], document["points"]
    measured = [point["concurrency"] for point in points if point["speedup"] is not None]
    if not measured:
        reasons = dict.fromkeys(point["invalid_reason"] for point in points)
        return f"nothing was measured: no point is valid ({', '.join(reasons)})"
    span = f"{measured[0]} to {measured[-1]}"
    low = "below" if found["low"] is None else f"{found['low']:.0f}"
    high = f"above {measured[-1]}" if found["high"] is None else f"{found['high']:.0f}"
    match found["outcome"]:
        case "crosses":
            low = f"{measured[0]} or less" if found["low"] is None else f"{found['low']:.0f}"
            return f"crossover: at concurrency {found['concurrency']:.0f} (95 % interval {low} to {high})"
        case "none_in_range":
            doubt = "" if found["low"] is None else f"; not proven from concurrency {found['low']:.0f} on"
            return f"crossover: none in range, speculation pays from concurrency {span}{doubt}"
        case _:
            doubt = "" if found["high"] is None else f"; not proven up to concurrency {found['high']:.0f}"
            return f"crossover: none in range, speculation loses from concurrency {span}{doubt}"


def _warnings(document: Mapping[str, Any]) -> Iterator[str]:
    for point in document["points"]:
        if point["invalid_reason"]:
            yield f"concurrency {point['concurrency']} is invalid: {point['invalid_reason']}: {point['invalid_detail']}"
        yield from point["warnings"]


def _point_columns(points: Sequence[Mapping[str, Any]]) -> list[Column]:
    ratios = [point["speedup"] for point in points if point["speedup"] is not None]
    low = max(min([1.0, *(ratio["low"] for ratio in ratios)]), 1 / WIDEST_RATIO)
    high = min(max([1.0, *(ratio["high"] for ratio in ratios)]), WIDEST_RATIO)

    def plot(point: Mapping[str, Any]) -> str:
        ratio = point["speedup"]
        if ratio is None:
            return f"invalid: {point['invalid_reason']}"
        return interval_plot((ratio["low"], ratio["ratio"], ratio["high"]), (low, high), PLOT_WIDTH, mark=1.0)

    def pair(name: str, *path: str) -> Callable[[Mapping[str, Any]], str]:
        def text(point: Mapping[str, Any]) -> str:
            values: list[Any] = [point["plain"], point["speculative"]]
            for key in path:
                values = [value[key] for value in values]
            return "→".join(figure(name, value) for value in values)

        return text

    return [
        Column("conc.", lambda point: str(point["concurrency"]), right=True),
        Column("speedup", lambda point: ratio_text(point["speedup"]), right=True),
        Column("┊ is 1.00", plot, whole=True),
        Column("AL", lambda point: figure("acceptance_length", point["speculative"]["acceptance_length"]), right=True),
        Column("source", lambda point: point["speculative"]["source"] or "none", once=True),
        Column("break-even", lambda point: figure("", point["break_even_acceptance_length"]), right=True),
        Column("tok/s", pair("tokens_per_second", "tokens_per_second"), right=True),
        Column("TTFT", pair("ttft_seconds", "ttft_seconds", "p50"), right=True),
    ]


def _side_by_side_rows(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for document in documents:
        for point in document["points"]:
            rows.setdefault(point["concurrency"], {"concurrency": point["concurrency"]})[document["label"]] = point
    return list(rows.values())


def _comparison_columns(documents: Sequence[Mapping[str, Any]]) -> list[Column]:
    def of(label: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda row: ratio_text(row[label]["speedup"])

    labels = [document["label"] for document in documents]
    columns = [Column("conc.", lambda row: str(row["concurrency"]), right=True)]
    return columns + [Column(label, of(label), right=True) for label in labels]
