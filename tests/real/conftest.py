"""Fixtures for tests against a real vLLM: a pool of servers, tables for the end of the run, a time-out per test.

Run by `make test-vllm`, that is `pytest tests/real -p no:randomly`: an order of tests that keeps to one kind of server
after another saves a start of half a minute at every change.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.real import install
from tests.real.client import ALL_PROMPTS, Answer, stream_chats
from tests.real.pool import ServerPool
from tests.real.servers import vllm_python
from tests.real.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.real.servers import RealServer

HERE = Path(__file__).resolve().parent
TIMEOUT_SECONDS = 600
pytest.register_assert_rewrite("tests.contract")  # before a test module imports it
TABLES = pytest.StashKey[Tables]()


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run where vLLM should be installed and is not."""
    config.stash[TABLES] = Tables()
    if vllm_python() is None and not install.unsupported():
        raise pytest.UsageError("vLLM is not installed: run tests/real/install.py or set SPECWATCH_VLLM_PYTHON")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test here its time-out; skip them all where the pinned vLLM does not exist."""
    left_out = vllm_python() is None and pytest.mark.skip(reason=f"real vLLM: LEFT OUT ({install.unsupported()})")
    for item in (item for item in items if item.path.is_relative_to(HERE)):
        item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))
        if left_out:
            item.add_marker(left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what the tests measured."""
    for title, lines in config.stash[TABLES].rendered():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def tables(request: pytest.FixtureRequest) -> Tables:
    """`tables.add("title", column=value, …)` adds a row to a table printed at the end."""
    return request.config.stash[TABLES]


@pytest.fixture(scope="session")
def servers(tables: Tables) -> Iterator[ServerPool]:
    """`servers.get("draft", drafter=…)` is a running server, shared by the session; at most two live at a time."""
    with ServerPool(tables) as pool:
        yield pool


@pytest.fixture(scope="session", params=["draft", "ngram", "eagle", "suffix"])
def speculative(request: pytest.FixtureRequest, servers: ServerPool) -> RealServer:
    """Each kind of speculative server in turn; pytest runs all tests of one before those of the next."""
    return servers.get(request.param)


@pytest.fixture(scope="session")
def plain_answers(servers: ServerPool) -> list[Answer]:
    """What a plain server answers to ALL_PROMPTS, the reference for greedy output."""
    return stream_chats(servers.get("plain").base_url, ALL_PROMPTS)
