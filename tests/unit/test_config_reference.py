"""The reference and the example files say what the models accept."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from monitor.config.alerting import Alerting
from monitor.config.load import check_secrets, load_config
from monitor.config.reference import as_yaml, reference_markdown
from monitor.config.routes import RoutesFile

ROOT = Path(__file__).parents[2]


def models(model: type[BaseModel]) -> list[type[BaseModel]]:
    found, waiting = [], [model]
    while waiting:
        current = waiting.pop()
        found.append(current)
        waiting += [each for each in nested(current) if each not in found]
    return found


def nested(model: type[BaseModel]) -> list[type[BaseModel]]:
    waiting: list[Any] = [field.annotation for field in model.model_fields.values()]
    found = []
    while waiting:
        annotation = waiting.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found.append(annotation)
        waiting += getattr(annotation, "__args__", ())
    return found


def test_the_committed_reference_is_current() -> None:
    committed = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert committed == reference_markdown(), (
        "write it again: python -m monitor.config.reference > docs/configuration.md"
    )


@pytest.mark.parametrize("top", [RoutesFile, Alerting])
def test_every_key_is_explained_beside_itself_and_in_the_reference(top: type[BaseModel]) -> None:
    text = reference_markdown()
    for model in models(top):
        for key, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{key}"
            assert f"| `{key}` |" in text
            assert field.description in text


@pytest.mark.parametrize("top", [RoutesFile, Alerting])
def test_a_key_without_a_value_of_its_own_says_what_unset_means(top: type[BaseModel]) -> None:
    for model in models(top):
        if model.__name__ in ("DeclaredIdentity", "Secret", "Receiver"):
            continue  # their docstring says it for all of their keys
        for key, field in model.model_fields.items():
            if not field.is_required() and field.get_default(call_default_factory=True) in (None, (), {}):
                assert "Unset" in (field.description or ""), f"{model.__name__}.{key}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(minutes=40), "40m"),
        ((timedelta(minutes=5), timedelta(minutes=10)), "[5m, 10m]"),
        ({"coding": 0.7, "math": 0.3}, "{coding: 0.7, math: 0.3}"),
        (True, "true"),
        (False, "false"),
        (None, "null"),
        (0.0, "0"),
        (128, "128"),
        ("chat", "chat"),
    ],
)
def test_values_are_shown_as_the_file_would_have_them(value: object, text: str) -> None:
    assert as_yaml(value) == text


def test_the_example_files_are_valid_and_need_no_secret() -> None:
    config = load_config(ROOT, ["coding", "math", "writing", "qa"])
    check_secrets(config, {})
    assert [(route.name, route.replicas) for route in config.routes] == [
        ("demo-chat", ("http://127.0.0.1:8501",)),
        ("demo-code", ("http://127.0.0.1:8502",)),
    ]
    for route in config.routes:
        assert (route.every, route.confirm_after) == (
            timedelta(seconds=6),
            (timedelta(seconds=2), timedelta(seconds=4)),
        )
        assert route.domains == ("coding", "math", "writing")
        assert route.baseline.approve_after == 3
    assert [(rule.name, rule.drop, rule.below, rule.severity) for rule in config.alerting.rules] == [
        ("acceptance-drop", 0.15, None, "page"),
        ("acceptance-slip", 0.10, None, "warning"),
        ("slow-leak", None, None, "warning"),
        ("dead-drafter", None, 0.05, "page"),
        ("speculation-loses", None, 1.0, "warning"),
    ]


def test_the_examples_left_as_comments_are_valid_when_uncommented(tmp_path: Path) -> None:
    for name in ("routes.yaml", "alerting.yaml"):
        (tmp_path / name).write_text(uncommented(name), encoding="utf-8")
    config = load_config(tmp_path, ["coding", "math", "writing", "qa"])
    assert [route.name for route in config.routes] == ["demo-chat", "demo-code", "chat-prod"]
    kinds = ["log", "webhook", "alertmanager", "pagerduty", "slack", "teams", "email"]
    assert [receiver.kind for receiver in config.alerting.receivers] == kinds
    assert config.alerting.external_url == "https://specwatch.example.com"


def uncommented(name: str) -> str:
    """The file with the comment marks taken off its commented-out keys: comment lines after an empty comment line."""
    lines = []
    example = False
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        bare = line.strip()
        example = (example or bare == "#") and bare.startswith("#")
        taken = line.replace("# ", "", 1) if (example and bare != "#") or bare.startswith("# external_url:") else line
        lines.append(taken)
    return "\n".join(lines)
