from __future__ import annotations

import pytest

from monitor.core.address import at_rank, shown_url, url_and_rank


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://vllm:8000/prefix", "http://vllm:8000/prefix"),
        ("http://vllm:8000?key=hidden", "http://vllm:8000?…"),
        ("http://vllm:8000/x#hidden", "http://vllm:8000/x#…"),
        ("http://user:hidden@vllm:8000/x?key=hidden", "http://…@vllm:8000/x?…"),
        ("http://user:hid/den@vllm", "http://…@vllm"),
        ("http://vllm/x?next=http://u:hidden@y", "http://vllm/x?…"),
        ("user:hidden@vllm:8000", "user:…@vllm:8000"),
        ("vllm:8000?key=hidden", "vllm:8000?…"),
        ("http:/user:hidden@vllm", "http:/…@vllm"),
        ("http://vllm\nhidden@x?hidden\nhidden", "http://…@x?…"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_url_is_shown_without_what_may_be_a_secret(url, shown):
    assert shown_url(url) == shown
    assert "hidden" not in shown_url(url)


@pytest.mark.parametrize(("rank", "replica"), [(None, "http://vllm:8000/x"), (0, "http://vllm:8000/x#rank=0")])
def test_a_rank_is_named_behind_the_address_and_found_there_again(rank, replica):
    assert at_rank("http://vllm:8000/x", rank) == replica
    assert url_and_rank(replica) == ("http://vllm:8000/x", rank)
