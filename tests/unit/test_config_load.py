"""Both files together: what is found, what is merged, and what each mistake is answered with."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from monitor.config.load import Config, check_secrets, config_directory, load_config
from monitor.config.retention import Retention
from monitor.config.secrets import Secret
from monitor.errors import ConfigError

DOMAINS = ["coding", "math", "qa"]
ROUTES = """\
routes:
  - name: chat-prod
    replicas: [http://vllm-0:8000]
"""
UNCHECKED = "fix these first; references between the files were not checked"
ALERTING = """\
rules:
  - {name: acceptance-drop, drop: 15%}
receivers:
  - {name: log, log: {}}
"""


class Directory:
    """A configuration directory of which a test writes the parts it is about."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("routes.yaml", ROUTES)
        self.write("alerting.yaml", ALERTING)

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, encoding="utf-8")

    def load(self) -> Config:
        return load_config(self.path, DOMAINS)

    def problems(self, environment: Mapping[str, str] | None = None) -> list[str]:
        """Of the secrets, too, with an environment."""
        with pytest.raises(ConfigError) as caught:
            load_config(self.path, DOMAINS, environment)
        return str(caught.value).splitlines()


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def test_the_smallest_configuration_has_every_default_in_place(directory: Directory) -> None:
    config = directory.load()
    (route,) = config.routes
    assert route.domains == ("coding", "math", "qa")
    assert route.mix == dict.fromkeys(DOMAINS, 1 / 3)
    assert config.directory == directory.path
    assert config.prompts is None
    assert [entry.receiver for entry in config.alerting.routing] == ["log"]


def test_the_issue_example_is_accepted(directory: Directory) -> None:
    directory.write(
        "routes.yaml",
        """\
defaults: {every: 40m, max_tokens: 128, concurrency: 4, confirm_after: [5m, 10m]}
routes:
  - name: chat-prod
    replicas: [http://vllm-0:8000, http://vllm-1:8000]
    plain_twin: http://vllm-plain:8000        # optional
    model: my-model                           # optional where the server serves one
    api_key: {env: VLLM_KEY}                  # or {file: /run/secrets/key}
    domains: [coding, math]                   # default: every set in probes/
    mix: {coding: 0.7, math: 0.3}             # default: equal
    baseline: {approve_after: 10}             # runs; default: none is approved by itself
    labels: {team: chat, tier: interactive}
""",
    )
    directory.write(
        "alerting.yaml",
        """\
rules:
  - {name: acceptance-drop, metric: acceptance_length, drop: 15%, severity: page}
receivers:
  - {name: hook, webhook: {url: http://alerts:9000/hook}}
routing:
  - {receiver: hook, severity: [page, warning]}
""",
    )
    (route,) = directory.load().routes
    assert route.mix == pytest.approx({"coding": 0.7, "math": 0.3})
    assert route.baseline.approve_after == 10
    assert route.api_key == Secret(env="VLLM_KEY")


def test_a_route_overrides_the_defaults_that_override_ours(directory: Directory) -> None:
    directory.write(
        "routes.yaml",
        """\
defaults: {every: 20m, max_tokens: 64}
routes:
  - {name: a, replicas: [http://a], max_tokens: 256}
  - {name: b, replicas: [http://b], every: 10m}
""",
    )
    first, second = directory.load().routes
    assert (first.every, first.max_tokens, first.concurrency) == (timedelta(minutes=20), 256, 4)
    assert (second.every, second.max_tokens, second.concurrency) == (timedelta(minutes=10), 64, 4)


def test_a_mapping_of_a_route_is_laid_over_that_of_the_defaults_key_by_key(directory: Directory) -> None:
    directory.write(
        "routes.yaml",
        """\
defaults:
  timeouts: {stall: 7s, total: 2m}
  headers: {X-Team: chat}
  identity: {target: llama, k: 3}
  extra_body: {priority: 5}
routes:
  - name: a
    replicas: [http://a]
    timeouts: {total: 3m}
    headers: {X-Tier: gold}
    identity: {k: 5}
    extra_body: {priority: 9}
""",
    )
    (route,) = directory.load().routes
    assert (route.timeouts.stall, route.timeouts.total) == (timedelta(seconds=7), timedelta(minutes=3))
    assert route.headers == {"X-Team": "chat", "X-Tier": "gold"}
    assert (route.identity.target, route.identity.k) == ("llama", 5)
    assert route.extra_body == {"priority": 9}


def test_relative_paths_start_at_the_configuration_directory(directory: Directory) -> None:
    directory.write(
        "routes.yaml",
        """\
routes:
  - {name: a, replicas: [https://a], ca_file: certs/ca.pem, api_key: {file: secrets/key}}
  - {name: b, replicas: [https://b], ca_file: /etc/ca.pem}
""",
    )
    first, second = directory.load().routes
    assert first.ca_file == directory.path / "certs" / "ca.pem"
    assert first.api_key == Secret(file=directory.path / "secrets" / "key")
    assert second.ca_file == Path("/etc/ca.pem")


def test_the_files_of_a_prompt_directory_of_ones_own_are_the_known_domains(directory: Directory) -> None:
    (directory.path / "mine").mkdir()
    directory.write("mine/sports.jsonl", "")
    directory.write("routes.yaml", "prompts: mine\n" + ROUTES)
    config = directory.load()
    assert config.prompts == directory.path / "mine"
    assert config.routes[0].domains == ("sports",)


def test_a_prompt_directory_without_prompts_is_refused(directory: Directory) -> None:
    directory.write("routes.yaml", "prompts: mine\n" + ROUTES)
    assert directory.problems() == [
        f"routes.yaml:1: prompts: no prompt sets (files DOMAIN.jsonl) in {directory.path / 'mine'}"
    ]


def test_every_problem_of_both_files_is_told_with_its_line(directory: Directory) -> None:
    directory.write(
        "routes.yaml",
        """\
defaults:
  max_tokens: 0
routes:
  - name: chat-prod
    replica: [http://vllm-0:8000]
    every: 40 minutes
    thinking: maybe
    labels:
""",
    )
    directory.write(
        "alerting.yaml",
        """\
rules:
  - {name: acceptance-drop, drop: 15}
receivers:
  - {name: log, log: {}}
routing:
  - {receiver: pager}
""",
    )
    problems = directory.problems()
    unknown = problems.pop(2)
    assert unknown.startswith(
        "routes.yaml:5: routes[0].replica: unknown key; allowed: name, replicas, data_parallel_ranks, "
    )
    assert unknown.endswith(" (did you mean 'replicas'?)")
    assert problems == [
        "routes.yaml:2: defaults.max_tokens: 0 is below 1; allowed: 1 to 1,000,000",
        "routes.yaml:4: routes[0].replicas: missing; it is required",
        "routes.yaml:6: routes[0].every: '40 minutes' is not a duration; write for example 40m, 90s or 1h30m",
        "routes.yaml:7: routes[0].thinking: 'maybe' is not true or false",
        "routes.yaml:8: routes[0].labels: has no value; give one or leave the key out",
        "alerting.yaml:2: rules[0].drop: 15 is not between 0% and 100%; did you mean 15%?",
        "alerting.yaml:6: routing[0].receiver: there is no receiver 'pager'; there are: log",
    ]


def test_a_mistake_in_the_defaults_is_told_once_however_many_routes_inherit_it(directory: Directory) -> None:
    directory.write(
        "routes.yaml",
        """\
defaults: {every: soon, timeouts: {stall: 20}}
routes:
  - {name: a, replicas: [http://a], timeouts: {total: 1m}}
  - {name: b, replicas: [http://b]}
""",
    )
    assert directory.problems() == [
        "routes.yaml:1: defaults.every: 'soon' is not a duration; write for example 40m, 90s or 1h30m",
        "routes.yaml:1: defaults.timeouts.stall: 20 is not a duration; write for example 40m, 90s or 1h30m",
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("max_tokens: '128'", "max_tokens: '128' is not a whole number"),
        ("max_tokens: true", "max_tokens: true is not a whole number"),
        ("temperature: hot", "temperature: 'hot' is not a number"),
        ("temperature: 3", "temperature: 3 is above 2; allowed: 0 to 2"),
        ("temperature: .nan", "temperature: nan is not a finite number"),
        ("extra_body: {x: [.inf]}", "extra_body: holds a number that JSON cannot carry: nan or infinity"),
        ("model: 7", "model: 7 is not text; put it in quotes"),
        ("model: 2026-01-31", "model: 2026-01-31 (a date) is not text; put it in quotes"),
        ("model: ''", "model: is empty"),
        ("endpoint: chatty", "endpoint: 'chatty' is not one of: 'chat', 'completions'"),
        ("source: guess", "source: 'guess' is not one of: 'auto', 'request', 'stream', 'counters'"),
        ("domains: coding", "domains: 'coding' is not a list, such as [a, b]"),
        ("domains: []", "domains: is empty; give at least one"),
        ("domains: [sports]", "domains: 'sports' is not a prompt set; there are: coding, math, qa"),
        ("timeouts: 5s", "timeouts: '5s' is not a mapping, such as {key: value}"),
        ("labels: [a]", "labels: a list is not a mapping, such as {key: value}"),
        ("labels: {tier: 1}", "labels.tier: 1 is not text; put it in quotes"),
        ("ca_file: 5", "ca_file: 5 is not the path of a file"),
        (
            "api_key: hunter2",
            "api_key: a secret is not written in this file; name where it is: {env: NAME} or {file: PATH}",
        ),
        ("api_key: [hunter2]", "api_key: the value is not a mapping, such as {key: value}"),
        ("api_key: {enviroment: A}", "api_key.enviroment: unknown key; allowed: env, file"),
        ("headers: {X-Team: 5}", "headers.X-Team: the value is not text; put it in quotes"),
        ("headers: {X-Team: {envv: A}}", "headers.X-Team.envv: unknown key; allowed: env, file (did you mean 'env'?)"),
        (
            "timeouts: {totl: 5s}",
            "timeouts.totl: unknown key; allowed: connect, first_token, stall, total (did you mean 'total'?)",
        ),
        (
            "identity: {color: red}",
            "identity.color: unknown key; allowed: engine, version, target, drafter, method, "
            "quantization, tensor_parallel, k",
        ),
        ("max_tokens: 99999999", "max_tokens: 99999999 is above 1,000,000; allowed: 1 to 1,000,000"),
        ("concurrency: 5000", "concurrency: 5000 is above 1,024; allowed: 1 to 1,024"),
        ("seed: -1", "seed: -1 is below 0; allowed: 0 to 9,223,372,036,854,775,807"),
        ("identity: {k: 5000}", "identity.k: 5000 is above 1,000; allowed: 1 to 1,000"),
        ("mix: {coding: 1.0e+300}", "mix.coding: 1e+300 is above 1,000,000"),
        ("domains: http://me:hidden@a/?key=hidden", "domains: 'http://…@a/?…' is not a list, such as [a, b]"),
        (
            "plain_twin: me:hidden@a:8000",
            "plain_twin: 'me:…@a:8000' is not a server's address; write for example http://vllm-0:8000",
        ),
        ("baseline: {approve_after: 0}", "baseline.approve_after: 0 is below 1; allowed: 1 to 1,000"),
    ],
)
def test_each_mistake_in_a_route_has_its_own_answer(directory: Directory, line: str, problem: str) -> None:
    directory.write("routes.yaml", f"{ROUTES}    {line}\n")
    assert directory.problems() == [f"routes.yaml:4: routes[0].{problem}"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"every: 5m\n{ROUTES}", "routes.yaml:1: every: unknown key; it belongs under defaults or a route"),
        (
            "defaults: {api_key: {env: A}}\n" + ROUTES,
            "routes.yaml:1: defaults.api_key: unknown key; it belongs to each route, not to defaults",
        ),
        (
            f"route: 1\n{ROUTES}",
            "routes.yaml:1: route: unknown key; allowed: prompts, defaults, routes, api_tokens, gates, "
            "retention (did you mean 'routes'?)",
        ),
        (
            f"retention: {{samples: 3d}}\n{ROUTES}",
            "routes.yaml:1: retention.samples: what is a few days old is still judged and explained by; write a week "
            "at least, as 90d",
        ),
        ("routes: []\n", "routes.yaml:1: routes: is empty; give at least one"),
        ("defaults: {}\n", "routes.yaml: routes: missing; it is required"),
        ("routes: {a: 1}\n", "routes.yaml:1: routes: a mapping is not a list, such as [a, b]"),
        ("routes: [chat]\n", "routes.yaml:1: routes[0]: 'chat' is not a mapping, such as {key: value}"),
        ("", "routes.yaml: is empty; docs/configuration.md lists its keys"),
        ("# nothing yet\n", "routes.yaml: is empty; docs/configuration.md lists its keys"),
        ("- a\n", "routes.yaml: is not a mapping of keys to values; docs/configuration.md lists its keys"),
        ("routes: [\n", "routes.yaml:2: not valid YAML: expected the node content, but found '<stream end>'"),
        ("a: b: c\n", "routes.yaml:1: not valid YAML: mapping values are not allowed here"),
        ("a: *b\n", "routes.yaml:1: not valid YAML: found undefined alias 'b'"),
        (
            "a: !!python/object:os.system {}\n",
            "routes.yaml:1: a: unknown key; allowed: prompts, defaults, routes, api_tokens, gates, retention",
        ),
        (
            f"{ROUTES}    every: 5m\n    every: 6m\n",
            "routes.yaml:5: routes[0].every: given twice, first on line 4",
        ),
        (
            "routes:\n  - {name: a, replicas: [http://a]}\n  - {name: a, replicas: [http://b]}\n",
            "routes.yaml:1: routes: two routes are named 'a'; a name is given once",
        ),
    ],
)
def test_each_mistake_in_the_shape_of_the_file_has_its_own_answer(
    directory: Directory, text: str, problem: str
) -> None:
    directory.write("routes.yaml", text)
    assert problem in directory.problems()


def test_a_key_given_twice_does_not_hide_the_other_problems(directory: Directory) -> None:
    directory.write("routes.yaml", f"{ROUTES}    seed: 1\n    seed: 2\n    endpoint: chatty\n")
    assert directory.problems() == [
        "routes.yaml:5: routes[0].seed: given twice, first on line 4",
        "routes.yaml:6: routes[0].endpoint: 'chatty' is not one of: 'chat', 'completions'",
    ]


def test_an_alias_that_holds_itself_is_refused(directory: Directory) -> None:
    directory.write("routes.yaml", "routes: &all [*all]\n")
    problem, unchecked = directory.problems()
    assert problem.startswith("routes.yaml: not valid YAML: ")
    assert unchecked == UNCHECKED


def test_anchors_and_merge_keys_may_share_values(directory: Directory) -> None:
    directory.write(
        "routes.yaml",
        """\
routes:
  - &chat {name: a, replicas: [http://a], seed: 7}
  - {<<: *chat, name: b}
""",
    )
    first, second = directory.load().routes
    assert (second.name, second.seed, second.replicas) == ("b", 7, first.replicas)


def test_text_that_is_not_utf_8_is_refused(directory: Directory) -> None:
    (directory.path / "routes.yaml").write_bytes(b"routes: \xff\n")
    assert directory.problems() == ["routes.yaml: is not text in UTF-8", UNCHECKED]


def test_a_control_character_is_told_with_its_line(directory: Directory) -> None:
    (directory.path / "routes.yaml").write_text("routes:\n  - name: 'a\x01'\n")
    assert directory.problems() == [r"routes.yaml:2: not valid YAML: character '\x01' is not allowed", UNCHECKED]


def test_missing_files_are_told_with_the_place_and_the_way_to_set_it(tmp_path: Path) -> None:
    (tmp_path / "alerting.yml").write_text(ALERTING)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path, DOMAINS)
    way = "name the directory that holds routes.yaml and alerting.yaml with --config DIR or SPECWATCH_CONFIG"
    assert str(caught.value).splitlines() == [
        f"routes.yaml: not found in {tmp_path}; {way}",
        f"alerting.yaml: not found in {tmp_path} (alerting.yml is there: rename it); {way}",
        UNCHECKED,
    ]


def test_a_directory_in_place_of_a_file_is_told(directory: Directory) -> None:
    (directory.path / "routes.yaml").unlink()
    (directory.path / "routes.yaml").mkdir()
    assert directory.problems() == [
        f"routes.yaml: cannot be read in {directory.path}: Is a directory",
        UNCHECKED,
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "rules: [{name: r, drop: 15%, routes: [chat]}]\nreceivers: [{name: log, log: {}}]\n",
            "alerting.yaml:1: rules[0].routes: there is no route 'chat'; there are: chat-prod",
        ),
        (
            "rules: [{name: r, drop: 15%, domains: [sports]}]\nreceivers: [{name: log, log: {}}]\n",
            "alerting.yaml:1: rules[0].domains: no route replays 'sports'; there are: coding, math, qa",
        ),
        (
            "rules: [{name: r, drop: 15%, match: {tier: gold}}]\nreceivers: [{name: log, log: {}}]\n",
            "alerting.yaml:1: rules[0].match: no route has these labels",
        ),
        (
            ALERTING + "routing:\n  - {receiver: log, routes: [chat]}\n",
            "alerting.yaml:6: routing[0].routes: there is no route 'chat'; there are: chat-prod",
        ),
        (
            ALERTING + "routing:\n  - {receiver: log, match: {tier: gold}}\n",
            "alerting.yaml:6: routing[0].match: no route has these labels",
        ),
        (
            ALERTING.replace("15%", "15%, severity: critical"),
            "alerting.yaml:2: rules[0].severity: 'critical' is not one of: 'page', 'warning'",
        ),
        (
            ALERTING.replace("log: {}", "pigeon: {}"),
            "alerting.yaml:4: receivers[0].pigeon: unknown key; allowed: name, webhook, alertmanager, pagerduty, "
            "slack, teams, email, apprise, log",
        ),
        (
            ALERTING.replace("log: {}", "log: {level: info}"),
            "alerting.yaml:4: receivers[0].log.level: unknown key; none is allowed here",
        ),
    ],
)
def test_a_rule_or_receiver_that_would_never_speak_is_refused(directory: Directory, text: str, problem: str) -> None:
    directory.write("alerting.yaml", text)
    assert problem in directory.problems()


def test_the_directory_comes_from_the_option_then_the_environment_then_where_we_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("option", "environment", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    environment = {"SPECWATCH_CONFIG": str(tmp_path / "environment")}
    assert config_directory(str(tmp_path / "option"), environment) == tmp_path / "option"
    assert config_directory(None, environment) == tmp_path / "environment"
    assert config_directory(None, {}) == tmp_path / "here"


def test_a_directory_that_is_not_there_is_told_with_what_named_it(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    with pytest.raises(ConfigError) as by_option:
        config_directory(str(missing), {})
    assert str(by_option.value) == f"--config: the configuration directory {missing} is not there"
    with pytest.raises(ConfigError) as by_environment:
        config_directory(None, {"SPECWATCH_CONFIG": str(missing)})
    assert str(by_environment.value) == f"SPECWATCH_CONFIG: the configuration directory {missing} is not there"


def test_a_file_in_place_of_the_directory_is_told(directory: Directory) -> None:
    file = directory.path / "routes.yaml"
    with pytest.raises(ConfigError) as caught:
        config_directory(str(file), {})
    assert str(caught.value) == (
        f"--config: the configuration directory {file} is a file; give the directory that holds it"
    )


def test_every_secret_that_cannot_be_had_is_told_once_with_its_key(directory: Directory) -> None:
    directory.write(
        "routes.yaml",
        """\
defaults: {headers: {X-Token: {env: TOKEN}}}
routes:
  - {name: a, replicas: [http://a], api_key: {file: key}, ca_file: ca.pem}
  - {name: b, replicas: [http://b], api_key: {env: B_KEY}}
""",
    )
    directory.write(
        "alerting.yaml", ALERTING.replace("log: {}", "webhook: {url: {env: HOOK}, headers: {X-Team: hello}}")
    )
    path = directory.path
    assert directory.problems({"B_KEY": "hunter2"}) == [
        "routes.yaml:1: defaults.headers.X-Token: environment variable TOKEN is not set; set it, or set TOKEN_FILE to "
        "the path of a file",
        f"routes.yaml:3: routes[0].ca_file: {path / 'ca.pem'} cannot be read",
        f"routes.yaml:3: routes[0].api_key: secret file {path / 'key'} cannot be read: No such file or directory",
        "alerting.yaml:4: receivers[0].webhook.url: environment variable HOOK is not set; set it, or set HOOK_FILE to "
        "the path of a file",
    ]


def test_mistakes_of_every_stage_are_told_at_once(directory: Directory) -> None:
    directory.write("routes.yaml", f"{ROUTES}    every: 40 minutes\n    api_key: {{env: VLLM_KEY}}\n")
    directory.write(
        "alerting.yaml",
        """\
rules:
  - {name: drop, drop: 15}
  - {name: nowhere, drop: 15%, routes: [nope], domains: [codng]}
receivers:
  - {name: hook, webhook: {url: {env: NOPE}, retries: 3}}
routing:
  - {receiver: hok, severty: [page]}
""",
    )
    told = [problem.split(";")[0].split(" (did")[0] for problem in directory.problems({})]
    assert told == [
        "routes.yaml:4: routes[0].every: '40 minutes' is not a duration",
        "routes.yaml:5: routes[0].api_key: environment variable VLLM_KEY is not set",
        "alerting.yaml:2: rules[0].drop: 15 is not between 0% and 100%",
        "alerting.yaml:5: receivers[0].webhook.retries: unknown key",
        "alerting.yaml:7: routing[0].severty: unknown key",
        "alerting.yaml:3: rules[1].routes: there is no route 'nope'",
        "alerting.yaml:3: rules[1].domains: no route replays 'codng'",
        "alerting.yaml:7: routing[0].receiver: there is no receiver 'hok'",
        "fix these first",
    ]
    assert directory.problems({})[-1] == "fix these first; the secrets of alerting.yaml: receivers[0] were not checked"


def test_what_cannot_be_read_is_no_reason_to_doubt_what_can(directory: Directory) -> None:
    """A domain, a name or labels with a mistake may be any: nothing is refused for want of them."""
    directory.write("routes.yaml", f"{ROUTES}    domains: coding\n    labels: [gold]\n")
    directory.write("alerting.yaml", ALERTING.replace("15%", "15%, domains: [sports], match: {tier: gold}"))
    assert [problem.split(": ")[1] for problem in directory.problems({})] == ["routes[0].domains", "routes[0].labels"]


def test_secrets_are_checked_beside_a_file_that_cannot_be_read(directory: Directory) -> None:
    directory.write("routes.yaml", f"{ROUTES}    api_key: {{env: VLLM_KEY}}\n")
    directory.write("alerting.yaml", "rules: [\n")
    assert [problem.split(": ")[-1].split(";")[-1].strip() for problem in directory.problems({})] == [
        "set it, or set VLLM_KEY_FILE to the path of a file",
        "expected the node content, but found '<stream end>'",
        "references between the files were not checked",
        "the secrets of alerting.yaml were not checked",
    ]


def test_secrets_of_a_loaded_configuration_are_told_without_a_line(directory: Directory) -> None:
    directory.write("routes.yaml", f"{ROUTES}    api_key: {{env: VLLM_KEY}}\n")
    with pytest.raises(ConfigError) as caught:
        check_secrets(directory.load(), {})
    assert str(caught.value) == (
        "routes.yaml: routes[0].api_key: environment variable VLLM_KEY is not set; set it, or set VLLM_KEY_FILE to the "
        "path of a file"
    )


def test_secrets_that_can_all_be_had_pass(directory: Directory) -> None:
    directory.write("routes.yaml", f"{ROUTES}    api_key: {{env: KEY}}\n    ca_file: ca.pem\n")
    directory.write("ca.pem", "certificate")
    config = directory.load()
    check_secrets(config, {"KEY": "hunter2"})
    assert "hunter2" not in repr(config)


def test_nothing_old_is_removed_unless_it_is_written(directory: Directory) -> None:
    directory.write("routes.yaml", ROUTES)
    assert directory.load().retention == Retention()
    directory.write("routes.yaml", f"retention: {{samples: 90d, organic: off}}\n{ROUTES}")
    assert directory.load().retention == Retention(samples=timedelta(days=90), organic=None)
