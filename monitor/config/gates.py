"""What gates that are asked over HTTP may do: which servers they may call."""

import ipaddress
import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StrictStr

from monitor.config.strict import StrictModel, at_least_one

ANY_HOST = "*"
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*", re.ASCII)


def _hosts(pattern: str) -> str:
    """The pattern in lower case. Raises ValueError for what is none."""
    low = pattern.lower()
    if low == ANY_HOST or (_NAME.fullmatch(low.removeprefix("*.")) and not _is_number(low)):
        return low
    try:
        return str(ipaddress.ip_network(low))
    except ValueError as error:
        if "has host bits set" in str(error):
            meant = ipaddress.ip_network(low, strict=False)
            raise ValueError(f"{pattern!r} is an address in a network; did you mean {str(meant)!r}?") from None
        raise ValueError(
            f"{pattern!r} is neither a host nor a network; write for example vllm-canary, '*.canary.svc', 10.0.0.7 or "
            "10.0.0.0/8, without a scheme and port"
        ) from None


def _is_number(text: str) -> bool:
    """Whether it could only be meant as an address: no name ends with a part of digits."""
    return text.rpartition(".")[2].isdecimal()


Hosts = Annotated[tuple[Annotated[StrictStr, AfterValidator(_hosts)], ...], AfterValidator(at_least_one)]


class Gates(StrictModel):
    """What a gate that is asked over HTTP may call."""

    candidates: Hosts | None = Field(
        default=None,
        examples=[["vllm-canary", "10.20.0.0/16"]],
        description="Hosts that `candidate`, `plain`, and `against` where it is a URL, may name: names, "
        "`'*.canary.svc'` (in quotes) for all below a name, addresses, networks, or `'*'` for any. A name is compared "
        "as it is written and never looked up, so a network admits only addresses. The replicas and the plain twin of "
        "the gate's route are always admitted. Unset: any host, and `serve` warns of it when it listens to other "
        "machines.",
    )

    def admits(self, url: str) -> bool:
        """Whether the server's host is one of those."""
        if self.candidates is None or ANY_HOST in self.candidates:
            return True
        host = (urlsplit(url).hostname or "").lower().rstrip(".")
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return _NAME.fullmatch(host) is not None and any(_is_of(host, pattern) for pattern in self.candidates)
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in network for network in map(_network, self.candidates) if network is not None)


def _is_of(name: str, pattern: str) -> bool:
    return name.endswith(pattern[1:]) if pattern.startswith("*.") else name == pattern


def _network(pattern: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(pattern)
    except ValueError:
        return None
