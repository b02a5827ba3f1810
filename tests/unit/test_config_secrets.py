"""Secrets are named, read when needed, and never shown."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from monitor.config.secrets import Secret
from monitor.errors import ConfigError


def refusal(value: object) -> str:
    with pytest.raises(ValidationError) as caught:
        Secret.model_validate(value)
    return caught.value.errors()[0]["msg"].removeprefix("Value error, ")


def test_a_secret_comes_from_its_environment_variable() -> None:
    assert Secret(env="VLLM_KEY").reveal({"VLLM_KEY": "hunter2"}) == "hunter2"


def test_a_secret_comes_from_the_file_that_name_file_points_to(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hunter2\n")
    assert Secret(env="VLLM_KEY").reveal({"VLLM_KEY_FILE": str(tmp_path / "key")}) == "hunter2"


def test_the_variable_itself_goes_before_its_file() -> None:
    assert Secret(env="VLLM_KEY").reveal({"VLLM_KEY": "hunter2", "VLLM_KEY_FILE": "/nowhere"}) == "hunter2"


@pytest.mark.parametrize("content", ["hunter2", "hunter2\n", "hunter2\r\n"])
def test_the_newline_at_the_end_of_a_secret_file_is_dropped(tmp_path: Path, content: str) -> None:
    (tmp_path / "key").write_bytes(content.encode())
    assert Secret(file=tmp_path / "key").reveal({}) == "hunter2"


def test_blanks_inside_a_secret_are_kept(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(" correct horse \n")
    assert Secret(file=tmp_path / "key").reveal({}) == " correct horse "


def test_a_rotated_file_is_read_again(tmp_path: Path) -> None:
    secret = Secret(file=tmp_path / "key")
    (tmp_path / "key").write_text("old")
    assert secret.reveal({}) == "old"
    (tmp_path / "key").write_text("new")
    assert secret.reveal({}) == "new"


@pytest.mark.parametrize(("environment", "state"), [({}, "is not set"), ({"VLLM_KEY": ""}, "is empty")])
def test_a_missing_variable_is_named_with_both_ways_to_set_it(environment: dict[str, str], state: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Secret(env="VLLM_KEY").reveal(environment)
    expected = f"environment variable VLLM_KEY {state}; set it, or set VLLM_KEY_FILE to the path of a file"
    assert str(caught.value) == expected


def test_a_secret_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Secret(file=tmp_path / "key").reveal({})
    assert str(caught.value) == f"secret file {tmp_path / 'key'} cannot be read: No such file or directory"


def test_a_missing_file_names_the_variable_that_led_there(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(ConfigError) as caught:
        Secret(env="KEY").reveal({"KEY_FILE": str(path)})
    assert str(caught.value) == f"secret file {path} (from KEY_FILE) cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"hunter2\nother", "has more than one line"),
        (b"hunter\xff2", "is not text in UTF-8"),
    ],
)
def test_a_faulty_secret_file_is_named_without_its_content(tmp_path: Path, content: bytes, fault: str) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        Secret(file=tmp_path / "key").reveal({})
    assert str(caught.value) == f"secret file {tmp_path / 'key'} {fault}"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("literal", ["hunter2", 12345])
def test_a_secret_written_in_the_file_is_refused_with_the_way_out(literal: object) -> None:
    assert refusal(literal) == ("a secret is not written in this file; name where it is: {env: NAME} or {file: PATH}")


@pytest.mark.parametrize("value", [{}, {"env": "A", "file": "/a"}])
def test_a_secret_has_exactly_one_place(value: dict[str, str]) -> None:
    assert refusal(value) == "give exactly one of env and file"


def test_a_key_written_as_the_variable_name_is_refused_and_not_repeated() -> None:
    message = refusal({"env": "sk-live-1234"})
    assert message == "this is not the name of an environment variable; a secret itself is never written here"


def test_printing_a_secret_shows_only_its_place() -> None:
    assert repr(Secret(env="VLLM_KEY")) == "Secret(env='VLLM_KEY', file=None)"
