"""The stack that ships beside the program: its files agree with each other, with the tree and with /metrics."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitor.config.load import load_config
from monitor.prompts.sets import bundled_directory
from monitor.service.serve import Service
from monitor.store.snapshot import Snapshot
from monitor.web.metrics import render
from tests.factories import START, make_route

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PLACEHOLDER = re.compile(r"\$\{[A-Z_]+(:[?-][^}]*)?\}")
PROMETHEUS_OWN = {"up"}


def parsed(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = parsed("docker-compose.yml")
    return document


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/specwatch.json").read_text(encoding="utf-8"))
    return document


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """Every metric name that /metrics can have, from a page with one of everything."""
    run = {
        **dict.fromkeys(("route", "domain", "replica", "source"), "x"),
        **dict.fromkeys(("acceptance_length", "acceptance_length_prompt_mean", "tokens_per_step"), 2.0),
        **dict.fromkeys(("acceptance_rate", "coverage"), 0.5),
        "survival": [0.5],
        "acceptance_by_source": {"request": 2.0},
        "warm": {"valid": True, "source": "x", "acceptance_length": 2.0},
    }
    run |= {"valid": True, "finished_at": "2026-03-02T10:00:00+00:00"}
    snapshot = Snapshot([run], [], {}, [{"route": "x", "severity": "page", "kind": "acceptance"}], {("x", "dead"): 1})
    snapshot = replace(snapshot, oldest_waiting={"x": START})
    page = render(snapshot, dict.fromkeys(service_counters(), 0.0), [make_route("x", domains=["x"])]).decode()
    return set(re.findall(r"^(\w+)(?=[{ ])", page, re.MULTILINE))


def service_counters() -> list[str]:
    """The names `serve` counts by, read from its source: making a Service takes a database."""
    source = inspect.getsource(Service.__init__) + inspect.getsource(Service._counted)
    return re.findall(r'"(\w+)": ', source)


def recorded() -> set[str]:
    rules = [rule for group in parsed("deploy/rules.yml")["groups"] for rule in group["rules"]]
    return {rule["record"] for rule in rules if "record" in rule}


def metrics_in(expression: str) -> set[str]:
    """The metric names of a PromQL expression."""
    bare = re.sub(r'"[^"]*"|\b(by|without|on|ignoring)\s*\([^)]*\)|\[[^\]]*\]|\boffset \w+', " ", expression)
    bare = re.sub(r"\{[^}]*\}", " ", bare)
    names = re.findall(r"[A-Za-z_:][\w:]*(?!\w|\s*\()", bare)
    return {name for name in names if name not in {"and", "or", "unless", "bool"} and not name.isdigit()}


def test_every_service_has_an_image_of_a_fixed_version_or_is_built_here(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"postgres", "specwatch", "prometheus", "alertmanager", "grafana", "vllm"}
    for name, service in compose["services"].items():
        if "build" in service:
            assert (ROOT / service["build"] / "Dockerfile").is_file()
        _, _, tag = service["image"].partition(":")
        assert re.search(r"\d", tag), f"{name} has no fixed version"


def test_every_service_is_restarted_and_says_whether_it_is_well(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["restart"] == "unless-stopped"
        assert "healthcheck" in service or "build" in service, name
    assert "HEALTHCHECK" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_image_is_built_from_everything_that_the_wheel_holds() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    sources = {*wanted["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"], "monitor", "pyproject.toml"}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert sources <= {name for line in copied for name in line.split()}
    assert {f"!{source}" for source in sources} <= set(allowed)


def test_every_mounted_file_is_in_the_tree_and_every_volume_is_declared(compose: dict[str, Any]) -> None:
    used = set()
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), source
                assert volume.endswith(":ro")
            else:
                used.add(source)
    assert used == set(compose["volumes"])


def test_no_secret_stands_in_the_stack(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for key, value in service.get("environment", {}).items():
            if re.search("PASSWORD|TOKEN|SECRET|KEY|URL", key) and not key.endswith("_FILE"):
                assert PLACEHOLDER.search(value), f"{name}: {key}"
                assert not re.search(r"//[^/@$]*:[^/@$]+@", value), f"{name}: {key}"
    for path in [*DEPLOY.rglob("*.y*ml"), ROOT / "docker-compose.yml"]:
        assert not re.search(r"(?i)(password|token|api_key):\s*[\"']?(?!\$|\{)\w", path.read_text(encoding="utf-8")), (
            path
        )


def test_a_missing_password_stops_the_stack_rather_than_being_empty(compose: dict[str, Any]) -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    for name in ("POSTGRES_PASSWORD", "GRAFANA_PASSWORD"):
        assert set(re.findall(rf"\$\{{{name}([^}}]*)\}}", text)) == {":?put it into .env"}


def test_ports_are_published_on_this_machine_only_and_once(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports)
    assert len({port.split(":")[1] for port in ports}) == len(ports) == 5


def test_the_vllm_server_is_left_out_unless_asked_for_and_reports_counts_per_request(compose: dict[str, Any]) -> None:
    vllm = compose["services"]["vllm"]
    assert vllm["profiles"] == ["gpu"]
    assert [name for name, service in compose["services"].items() if "profiles" in service] == ["vllm"]
    command = vllm["command"]
    assert command[command.index("--per-request-spec-decode-metrics") + 1] == "summary"
    assert "--enable-per-request-metrics" in command
    speculation = json.loads(PLACEHOLDER.sub("drafter", command[command.index("--speculative-config") + 1]))
    assert speculation == {"method": "draft_model", "model": "drafter", "num_speculative_tokens": 4}


def test_the_stack_measures_the_vllm_server_it_starts(compose: dict[str, Any]) -> None:
    domains = sorted(path.stem for path in bundled_directory().glob("*.jsonl"))
    config = load_config(DEPLOY / "specwatch", domains)
    (route,) = config.routes
    assert route.replicas == ("http://vllm:8000",)
    assert f"--served-model-name={route.model}" in compose["services"]["vllm"]["command"]


def test_prometheus_and_grafana_look_where_the_stack_answers(compose: dict[str, Any]) -> None:
    prometheus = parsed("deploy/prometheus.yml")
    jobs = {job["job_name"]: job["static_configs"][0]["targets"] for job in prometheus["scrape_configs"]}
    assert jobs == {"specwatch": ["specwatch:8400"], "alertmanager": ["alertmanager:9093"]}
    mounted = {volume.split(":")[1] for volume in compose["services"]["prometheus"]["volumes"]}
    assert set(prometheus["rule_files"]) <= mounted
    (source,) = parsed("deploy/grafana/provisioning/datasources/prometheus.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = parsed("deploy/grafana/provisioning/dashboards/specwatch.yml")["providers"]
    assert f"./deploy/grafana/dashboards:{provider['options']['path']}:ro" in compose["services"]["grafana"]["volumes"]


def test_every_metric_of_the_rules_is_exported(exported: set[str]) -> None:
    rules = [rule for group in parsed("deploy/rules.yml")["groups"] for rule in group["rules"]]
    used = set().union(*(metrics_in(rule["expr"]) for rule in rules))
    assert "specwatch_incident_open" in used
    assert used - exported - recorded() - PROMETHEUS_OWN == set()


def test_every_alert_says_what_happened_what_to_do_and_how_urgent_it_is() -> None:
    alerts = [rule for group in parsed("deploy/rules.yml")["groups"] for rule in group["rules"] if "alert" in rule]
    assert len({alert["alert"] for alert in alerts}) == len(alerts)
    for alert in alerts:
        assert alert["labels"]["severity"] in ("page", "warning")
        assert set(alert["annotations"]) == {"summary", "description"}


def test_a_route_that_is_not_measured_is_as_urgent_for_prometheus_as_for_specwatch() -> None:
    alerts = {rule.get("alert"): rule for group in parsed("deploy/rules.yml")["groups"] for rule in group["rules"]}
    own = parsed("alerting.yaml")["stale"]
    assert alerts["SpecwatchRouteNotMeasured"]["labels"]["severity"] == own["severity"]
    assert f"group_left () {own['after']} * max" in alerts["SpecwatchRouteNotMeasured"]["expr"]


def test_every_metric_of_the_dashboard_is_exported(dashboard: dict[str, Any], exported: set[str]) -> None:
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [annotation["expr"] for annotation in dashboard["annotations"]["list"]]
    used = set().union(*map(metrics_in, expressions))
    assert "specwatch_acceptance_length" in used
    assert used - exported - recorded() == set()
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            assert re.search(r"label_values\((\w+)", variable["query"]["query"])[1] in exported  # type: ignore[index]


def test_panels_have_units_descriptions_and_the_chosen_data_source(dashboard: dict[str, Any]) -> None:
    assert dashboard["templating"]["list"][0]["type"] == "datasource"
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"]) > 10
    for panel in dashboard["panels"]:
        assert panel["title"]
        assert len(panel["description"]) > 30
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


def test_rates_on_the_dashboard_follow_the_scrape_interval(dashboard: dict[str, Any]) -> None:
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rates = [expression for expression in expressions if re.search(r"\b(rate|increase)\(", expression)]
    assert rates
    assert all(re.findall(r"\[([^\]]*)\]", expression) == ["$__rate_interval"] for expression in rates)


def test_panels_do_not_lie_on_each_other(dashboard: dict[str, Any]) -> None:
    taken = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, panel["title"]
                taken.add((x, y))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_the_rules_fire_and_stay_silent_when_they_should() -> None:
    result = subprocess.run(
        ["promtool", "test", "rules", str(DEPLOY / "rules_test.yml")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
