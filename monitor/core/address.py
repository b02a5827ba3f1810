"""How a server's address is written: as a replica, perhaps with a rank, and shown without secrets."""

from __future__ import annotations

import ipaddress
import re

_USER = re.compile(r"^([a-z][a-z0-9+.-]*:/*)?.*@", re.IGNORECASE | re.DOTALL)
_QUERY = re.compile(r"([?#]).*$", re.DOTALL)
RANK_HEADER = "X-data-parallel-rank"
"""Pins a request to one of vLLM's data-parallel engines (0.11 and later)."""
_RANK = "#rank="


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def shown_url(url: str) -> str:
    """The URL without user, password, query and fragment: http://…@host/path?…

    Takes any text, also one that is no URL: it is shown because something is wrong with it.
    """
    return _USER.sub(r"\1…@", _QUERY.sub(r"\1…", url))


def at_rank(url: str, rank: int | None) -> str:
    """The replica that is one data-parallel rank behind a base URL, `http://vllm:8000#rank=1`; None: all of it."""
    return url if rank is None else f"{url}{_RANK}{rank}"


def url_and_rank(replica: str) -> tuple[str, int | None]:
    """The base URL of a replica, and its data-parallel rank where it is one."""
    url, _, rank = replica.partition(_RANK)
    return url, int(rank) if rank else None
