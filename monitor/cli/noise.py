"""`specwatch noise ROUTE`: how noisy the route is, and what its rules and prompts give on that noise."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.output import Column, document_format_option, parse_time, print_table
from monitor.config.units import format_duration
from monitor.core.format import NOTHING, change, count
from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from monitor.cli.context import Context
    from monitor.config.alerting import Rule
    from monitor.config.routes import Route
    from monitor.core.promises import Case
    from monitor.core.spread import Spread

SEED = 1
"""The same history gives the same figures."""
YEAR_SECONDS = 365 * 86_400


@dataclass(frozen=True)
class _Domain:
    """What is known of one domain: its spread and the case to simulate, or why there is none; whether a rule looks for
    a slow leak of it."""

    name: str
    source: str | None = None
    baseline_runs: int | None = None
    spread: Spread | None = None
    case: Case | None = None
    leaks: bool = False
    missing: str | None = None


@click.command()
@click.argument("route")
@click.option("--since", callback=parse_time, metavar="TIME", help="Only runs since then: 30d, or a time.")
@click.option(
    "--looks",
    type=click.IntRange(10_000, 100_000_000),
    default=1_000_000,
    show_default=True,
    help="Simulated looks when nothing changed: more give a closer bound; a million take some seconds.",
)
@document_format_option
@click.pass_obj
def noise(context: Context, route: str, since: datetime | None, looks: int, format_: str) -> None:
    """Measure how much ROUTE varies by itself, and what its rules give on that: false pages, and drops seen.

    From valid scheduled runs outside incidents, between bumps. The judge itself decides simulated runs with the spread
    that was measured; shocks too rare to be measured are assumed as in docs/statistics.md. Then says which numbers of
    prompts and which drops would keep the promises. A domain with too little history is said to have too little.
    """
    config, found = context.load_config(), context.route(route)
    with context.database() as database, database.transaction() as connection:
        domains = [_domain(connection, found, name, config.alerting.rules, since) for name in found.domains]
    if all(domain.case is None for domain in domains):
        reasons = "; ".join(_missing({domain.name: domain.missing for domain in domains}))
        raise UsageError(f"the noise of route {route} cannot be measured yet: {reasons}")
    document = _document(found, domains, looks)
    if format_ == "json":
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        _print(document)


def _domain(connection: Connection, route: Route, name: str, rules: Sequence[Rule], since: datetime | None) -> _Domain:
    from monitor.core.judge import MIN_SHARED_PROMPTS
    from monitor.core.promises import Case
    from monitor.core.spread import Spread, spread
    from monitor.store.baselines import reference
    from monitor.store.stretches import undisturbed_runs

    page, warn = _rules(route, name, rules)
    if page is None:
        return _Domain(name, missing="no rule of alerting.yaml pages for it")
    runs, alike = undisturbed_runs(connection, route.name, name, page.metric, since)
    measured = spread(runs)
    if alike is None or not isinstance(measured, Spread):
        return _Domain(name, missing="no valid scheduled run" if alike is None else str(measured))
    if measured.prompts < MIN_SHARED_PROMPTS:
        few = f"its runs have {measured.prompts} prompts; {MIN_SHARED_PROMPTS} are needed to be judged"
        return _Domain(name, alike.source, spread=measured, missing=few)
    baseline = reference(connection, route.name, name, page.metric, alike)
    made_from = baseline.runs if baseline is not None else route.baseline.approve_after
    case = Case(
        measured.noise(*(span.total_seconds() for span in (*route.confirm_after, route.every))),
        _setting(measured.prompts, page, warn, made_from),
    )
    return _Domain(name, alike.source, case.setting.baseline_runs, measured, case, _leak_rule(route, name, page, rules))


def _rules(route: Route, domain: str, rules: Sequence[Rule]) -> tuple[Rule | None, Rule | None]:
    """The most sensitive rule that pages for the domain, and the one that warns by the same metric."""
    from monitor.service.judging import applies

    own = sorted(
        (r for r in rules if r.drop is not None and r.metric != "speedup" and applies(r, route, domain)),
        key=lambda r: r.drop or 0,
    )
    page = next((rule for rule in own if rule.severity == "page"), None)
    if page is None:
        return None, None
    return page, next((rule for rule in own if rule.severity == "warning" and rule.metric == page.metric), None)


def _leak_rule(route: Route, domain: str, page: Rule, rules: Sequence[Rule]) -> bool:
    """Whether one looks for a leak of what the page is about: only its noise is measured."""
    from monitor.service.judging import applies

    return any(rule.leak and rule.metric == page.metric and applies(rule, route, domain) for rule in rules)


def _setting(prompts: int, page: Rule, warn: Rule | None, baseline_runs: int | None) -> Any:
    from monitor.core.noise import BASELINE_RUNS, Setting

    assert page.drop is not None, "rules without a drop are passed over"
    return Setting(prompts, page.drop, None if warn is None else warn.drop, baseline_runs or BASELINE_RUNS, page.metric)


def _document(route: Route, domains: Sequence[_Domain], looks: int) -> dict[str, Any]:
    """The JSON shape (docs/json.md). Rates are of the domains that could be measured."""
    import numpy as np

    from monitor.core.leak_noise import false_leaks, leak_detections
    from monitor.core.noise import PAGED, WARNED
    from monitor.core.promises import detections, keeping_settings, loudest, promises, route_false_rates

    generator = np.random.default_rng(SEED)
    cases = [domain.case for domain in domains if domain.case is not None]
    looks_per_year = len(cases) * YEAR_SECONDS / route.every.total_seconds()
    rates = route_false_rates(cases, looks_per_year, looks, generator)
    staying = route_false_rates(cases, looks_per_year, looks // 4, generator, stays=True)
    leaking = [(domain.case.noise, domain.case.setting) for domain in domains if domain.case and domain.leaks]
    leaks = looks_per_year * len(leaking) / len(cases)
    return {
        "route": route.name,
        "every_seconds": route.every.total_seconds(),
        "confirm_after_seconds": [delay.total_seconds() for delay in route.confirm_after],
        "domains": [
            {
                **_domain_document(domain),
                "detection": None if domain.case is None else detections(domain.case, generator),
                "leak_detection": leak_detections(domain.case.noise, domain.case.setting, generator)
                if domain.case and domain.leaks
                else None,
            }
            for domain in domains
        ],
        "looks_per_year": looks_per_year,
        "looks_simulated": looks,
        "false_pages": rates[PAGED].as_dict(),
        "false_warnings": rates[WARNED].as_dict(),
        "false_pages_if_shocks_stay": staying[PAGED].as_dict(),
        "false_leaks": false_leaks(leaking, leaks, looks, generator).as_dict() if leaking else None,
        "promises": promises(),
        "settings_domain": next(domain.name for domain in domains if domain.case is loudest(cases)),
        "settings": list(keeping_settings(cases, looks_per_year, generator)),
    }


def _domain_document(domain: _Domain) -> dict[str, Any]:
    setting = None if domain.case is None else domain.case.setting
    return {
        "domain": domain.name,
        "source": domain.source,
        "missing": domain.missing,
        "metric": None if setting is None else setting.metric,
        "page_drop": None if setting is None else setting.page_drop,
        "warn_drop": None if setting is None else setting.warn_drop,
        "baseline_runs": domain.baseline_runs,
        "spread": None if domain.spread is None else domain.spread.as_dict(),
        "persistence": None if domain.case is None else domain.case.noise.persistence,
        "lasting": None if domain.case is None else domain.case.noise.lasting,
    }


def _print(document: Mapping[str, Any]) -> None:
    rows = document["domains"]
    click.echo(
        f"route {document['route']}, a run of each domain every "
        f"{format_duration(timedelta(seconds=document['every_seconds']))}: {document['looks_per_year']:,.0f} a year\n"
    )
    print_table([row for row in rows if row["missing"] is None], _columns())
    click.echo(
        "\nSpreads are standard deviations of one prompt, and of whole runs beyond that.\n"
        "'neighbours': correlation of runs one period apart. Under true drops: the chance of a\n"
        "page at the first probe / within three."
    )
    for line in _missing({row["domain"]: row["missing"] for row in rows}):
        click.echo(f"not measured: {line}", err=True)
    click.echo(f"\nfalse pages      {_rate(document['false_pages'])}")
    click.echo(f"                 {_rate(document['false_pages_if_shocks_stay'])} if no shock faded until confirmed")
    click.echo(f"false warnings   {_rate(document['false_warnings'])}")
    if document["false_leaks"] is not None:
        click.echo(f"false slow leaks {_rate(document['false_leaks'])}")
        _print_leaks(rows)
    _print_settings(document)


def _missing(reasons: Mapping[str, str | None]) -> list[str]:
    """Why domains could not be measured, once for all that lack the same."""
    alike: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if reason is not None:
            alike.setdefault(reason, []).append(name)
    return [f"{', '.join(names)}: {reason}" for reason, names in alike.items()]


def _print_leaks(rows: Sequence[Mapping[str, Any]]) -> None:
    """Of the domain that is told latest, so that the others are told sooner."""
    known = [row for row in rows if row["leak_detection"]]
    worst = min(known, key=lambda row: [told["told"] for told in reversed(row["leak_detection"])])
    chances = ", ".join(f"{change(-told['loss'], 0)} {told['told']:.2f}" for told in worst["leak_detection"])
    runs = worst["leak_detection"][0]["within_runs"]
    click.echo(f"                 true losses told within {runs} runs: {chances}, on {worst['domain']}")


def _print_settings(document: Mapping[str, Any]) -> None:
    promised = document["promises"]
    click.echo(
        f"\n{change(-promised['drop'], 0)} is paged at the first probe in {promised['paged_at_first']:.0%}, with "
        f"{promised['false_pages_per_year']:g} false pages a year or fewer,\n"
        f"on {document['settings_domain']}, which spreads most, by estimates:"
    )
    for setting in document["settings"]:
        click.echo(
            f"  drop {setting['drop']:.0%}: {count(setting['prompts'], 'prompt')} or more "
            f"({setting['paged_at_first']:.1%}; {setting['false_pages_per_year']:.2f} false pages a year)"
        )
    if not document["settings"]:
        click.echo("  no setting that was tried; the spread of whole runs is one that no number of prompts lowers")


def _rate(rate: Mapping[str, float]) -> str:
    return f"{rate['per_year']:.2f} a year, at most {rate['at_most']:.2f} with 95 % confidence"


def _columns() -> list[Column]:
    from monitor.core.promises import TRUE_DROPS

    found = [
        Column("domain", lambda row: row["domain"]),
        Column("source", lambda row: row["source"], once=True),
        Column("runs", lambda row: str(row["spread"]["runs"]), right=True),
        Column("prompts", lambda row: str(row["spread"]["prompts"]), right=True),
        Column("a prompt", lambda row: f"{row['spread']['prompt_sd']:.1%}", right=True),
        Column("a run", lambda row: f"{row['spread']['run_sd']:.1%}", right=True),
        Column("neighbours", lambda row: _correlation(row["spread"]["autocorrelation"]), right=True),
    ]
    for place, drop in enumerate(TRUE_DROPS):
        found.append(Column(change(-drop, 0), lambda row, n=place: _chances(row["detection"][n]), right=True))  # type: ignore[misc]
    return found


def _correlation(value: float | None) -> str:
    return NOTHING if value is None else f"{value:+.2f}"


def _chances(row: Mapping[str, float]) -> str:
    return f"{row['paged_at_first']:.2f} / {row['paged_within_3']:.2f}"
