"""Options that are refused before anything is asked of a server or a database."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from monitor.cli import cli
from monitor.errors import StoreError
from monitor.store.database import parse_url

URL = "http://127.0.0.1:1"
TOO_LARGE = str(2**63)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("probe", URL, "--header", "Ü=x"), "'Ü' is not the name of an HTTP header"),
        (("probe", URL, "--extra-body", '{"x": NaN}'), "NaN is a number that JSON cannot carry"),
        (("probe", URL, "--extra-body", "[" * 100_000), "not JSON"),
        (("probe", URL, "--extra-body", '{"stream": false}'), "stream is set by the probe\n"),
        (("probe", URL, "--extra-body", '{"seed": 1}'), "seed is set by the probe, from the setting seed"),
        (("probe", URL, "--max-tokens", "9999999999"), "9999999999 is not in the range 1<=x<=1000000"),
        (("probe", URL, "--concurrency", "5000"), "5000 is not in the range 1<=x<=1024"),
        (("probe", "http://me:hid@x/?key=hid"), "a URL with a user or password in it is refused"),
        (("probe", "http://x:8000?key=hid"), "'http://x:8000?…' has a query or fragment"),
        (("probe", URL, "--temperature", "nan"), "nan is not a number from 0 to 2"),
        (("probe", URL, "--route", "a\nb"), "is not a name"),
        (("probe", URL, "--route", ""), "is not a name"),
        (("history", "chat", "--zone", "Nope/Zone"), "'Nope/Zone' is not a time zone"),
        (("history", "chat", "--zone", "../../etc/passwd"), "is not a time zone"),
        (("history", "chat", "--since", "1h", "--until", "2h"), "--until is not after --since"),
        (("run", "show", TOO_LARGE), "is not an id"),
        (("incidents", TOO_LARGE), "is not an id"),
        (("baseline", "show", TOO_LARGE), "is not an id"),
        (("baseline", "approve", TOO_LARGE), "is not an id"),
        (("baseline", "create", "chat", "--run", TOO_LARGE), "is not an id"),
    ],
)
def test_a_value_that_cannot_be_used_is_a_usage_error(arguments, said):
    result = CliRunner().invoke(cli, arguments)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    assert "=hid" not in result.stderr


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:hidden@host:port/x", "not a URL"),
        ("postgresql://host/x?nonsense=hidden", "'nonsense', which Postgres does not know"),
    ],
)
def test_a_database_url_that_cannot_be_used_is_a_store_error_without_its_secrets(url, said):
    with pytest.raises(StoreError, match=said) as caught:
        parse_url(url)
    assert "hidden" not in str(caught.value)


def test_a_password_among_the_options_of_a_database_url_is_used_and_never_shown():
    url = parse_url("postgresql://host/x?password=hidden&sslmode=require")
    assert url.password == "hidden"
    assert dict(url.query) == {"sslmode": "require"}
    assert "hidden" not in url.render_as_string(hide_password=True)
