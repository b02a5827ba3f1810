"""`routes.yaml`: what is measured, and how."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, StrictStr, ValidationInfo, field_validator

from monitor.config.gates import Gates
from monitor.config.limits import MAX_GPUS, MAX_RUNS, MAX_WEIGHT
from monitor.config.receivers import WebAddress
from monitor.config.replicas import ListedOrFound, Url
from monitor.config.retention import Retention
from monitor.config.secrets import Secret, from_directory
from monitor.config.settings import Settings
from monitor.config.strict import Labels, Name, Names, Number, StrictModel, Text, Whole, at_least_one
from monitor.config.tokens import ApiToken, distinct_tokens
from monitor.config.units import format_duration
from monitor.core.address import RANK_HEADER

RESERVED_LABELS = frozenset({"alertname", "domain", "replica", "route", "rule", "severity"})


class Defaults(Settings):
    """Values for every route that does not say otherwise."""


class BaselinePolicy(StrictModel):
    """Whether a baseline is approved without a person."""

    approve_after: Annotated[Whole, Field(le=MAX_RUNS)] | None = Field(
        default=None,
        examples=[10],
        description="Approve the first baseline of each domain by itself from this many valid runs of one identity: "
        "after a change the count begins anew. Unset: none is approved by itself, and no rule can trip until someone "
        "approves one.",
    )


class Route(Settings):
    """One named production path: a served model with one speculation config behind one or more replicas.

    After `load_config` every value is in place: those of `defaults` are merged in, `domains` names every domain
    probed, and the weights of `mix` add up to 1.
    """

    name: Name = Field(examples=["chat-prod"], description="Name of the route in history, metrics and alerts; unique.")
    replicas: ListedOrFound = Field(
        examples=[["http://vllm-0:8000", "http://vllm-1:8000"]],
        description="Base URLs of its vLLM servers, without `/v1`; a path before that is kept as a prefix. Or where "
        "they are found: `{dns: URL}`, `{file_sd: PATH}` or `{http_sd: URL}`, [as below](#replicas).",
    )
    data_parallel_ranks: Annotated[Whole, Field(ge=2, le=MAX_GPUS)] | None = Field(
        default=None,
        examples=[2],
        description="vLLM's data-parallel engines behind each address (`--data-parallel-size`, from vLLM 0.11). "
        "Each is then a replica of its own, `URL#rank=N`, probed in its turn: the header `X-data-parallel-rank` pins a "
        "run to it, and load and counters are its own. Unset: the server chooses, and engines are measured together.",
    )
    plain_twin: Url | None = Field(
        default=None,
        examples=["http://vllm-plain:8000"],
        description="Base URL of a server of the same target with speculation off, the reference for measured speedup. "
        "It is asked what a replica is asked, every `speedup_every`; beside a route with `data_parallel_ranks`, its "
        "rank 0 alone. Unset: speedup is modelled from a stored sweep, where there is one.",
    )
    model: Text | None = Field(
        default=None,
        examples=["my-model"],
        description="Name of the model in requests. Unset: the only one that the server serves.",
    )
    api_key: Secret | None = Field(
        default=None,
        examples=[{"env": "VLLM_KEY"}],
        description="Bearer token, named by `{env: NAME}` or `{file: PATH}`. Unset: none is sent.",
    )
    domains: Names = Field(
        default=(),
        examples=[["coding", "math"]],
        description="Prompt sets that are replayed. Unset: every set there is.",
    )
    mix: Annotated[Mapping[StrictStr, Annotated[Number, Field(le=MAX_WEIGHT)]], Field(validate_default=True)] = Field(
        default_factory=dict,
        examples=[{"coding": 0.7, "math": 0.3}],
        description="Weight of each domain in the route's own figure; only their proportion counts. A domain left out "
        "is judged alone and does not count for the route. Unset: all domains weigh the same.",
    )
    baseline: BaselinePolicy = Field(default=BaselinePolicy(), description="How a baseline comes about.")
    labels: Labels = Field(
        default_factory=dict,
        examples=[{"team": "chat", "tier": "interactive"}],
        description="Labels of the route in metrics and alerts; `match` in alerting.yaml selects by them. Unset: none.",
    )

    runbook_url: WebAddress | None = Field(
        default=None,
        examples=["https://wiki.example.com/chat-prod"],
        description="What your on-call reads on an alert of this route; one that a rule of alerting.yaml has goes "
        "before. Unset: the one of alerting.yaml.",
    )

    @property
    def listed(self) -> tuple[str, ...]:
        """The replicas that are written in the file; those that are found are known only to who looks for them."""
        return self.replicas if isinstance(self.replicas, tuple) else ()

    @field_validator("data_parallel_ranks")
    @classmethod
    def _only_where_a_header_pins_them(cls, ranks: int | None, info: ValidationInfo) -> int | None:
        if ranks is not None and info.data.get("engine", "vllm") != "vllm":
            raise ValueError(f"engine {info.data['engine']} has no header that chooses a rank; only vllm has one")
        if ranks is not None and any(name.lower() == RANK_HEADER.lower() for name in info.data.get("headers", ())):
            raise ValueError(f"headers names one {RANK_HEADER} for all probes; leave one of the two out")
        return ranks

    @field_validator("plain_twin")
    @classmethod
    def _not_a_replica(cls, twin: str | None, info: ValidationInfo) -> str | None:
        replicas = info.data.get("replicas")
        if isinstance(replicas, tuple) and twin in replicas:
            raise ValueError(f"{twin!r} is one of the replicas; the plain twin is a server without speculation")
        return twin

    @field_validator("labels")
    @classmethod
    def _not_ours(cls, labels: Mapping[str, str]) -> Mapping[str, str]:
        if taken := sorted(RESERVED_LABELS & labels.keys()):
            raise ValueError(f"{taken[0]!r} is a label that Specwatch sets itself; choose another name")
        return labels

    @field_validator("domains")
    @classmethod
    def _known(cls, domains: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        known: Collection[str] | None = (info.context or {}).get("known_domains")
        unknown = [domain for domain in domains if known is not None and domain not in known]
        if known is not None and unknown:
            raise ValueError(f"{unknown[0]!r} is not a prompt set; there are: {', '.join(sorted(known))}")
        return domains

    @field_validator("mix")
    @classmethod
    def _normalised(cls, mix: Mapping[str, float], info: ValidationInfo) -> Mapping[str, float]:
        domains = info.data.get("domains")
        if domains is None:
            return mix  # the domains themselves are wrong, which is reported already
        for domain, weight in mix.items():
            if domain not in domains:
                raise ValueError(f"{domain!r} is not among the domains of this route: {', '.join(domains)}")
            if weight <= 0:
                raise ValueError(f"{domain} weighs {weight:g}; write a number above 0, or leave the domain out")
        weights = dict(mix) or dict.fromkeys(domains, 1.0)
        total = sum(weights.values())
        return {domain: weights[domain] / total for domain in domains if domain in weights}


class RoutesFile(StrictModel):
    """The top level of `routes.yaml`."""

    prompts: Path | None = Field(
        default=None,
        examples=["prompts"],
        description="Directory with your own prompt sets, one `DOMAIN.jsonl` each, instead of those that come with "
        "Specwatch. Unset: those. A relative path starts at the configuration directory.",
    )
    defaults: Defaults = Field(
        default_factory=Defaults, description="Values for every route that does not say otherwise."
    )
    routes: Annotated[tuple[Route, ...], AfterValidator(at_least_one)] = Field(description="The routes, at least one.")
    api_tokens: Annotated[tuple[ApiToken, ...], AfterValidator(distinct_tokens)] = Field(
        default=(), description="Who may ask for something over HTTP. Unset: nobody, and the pages only show."
    )
    gates: Gates = Field(default_factory=Gates, description="What gates that they ask for may do.")

    retention: Retention = Field(default=Retention(), description="What of old measurements is removed.")

    @field_validator("prompts")
    @classmethod
    def _from_the_directory(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        return from_directory(path, info)

    @field_validator("retention")
    @classmethod
    def _long_enough_for_baselines(cls, retention: Retention, info: ValidationInfo) -> Retention:
        for route in info.data.get("routes", ()):
            runs = route.baseline.approve_after
            if retention.samples is not None and runs and retention.samples < runs * route.every:
                raise ValueError(
                    f"samples are removed after {format_duration(retention.samples)}, before {route.name}, which runs "
                    f"every {format_duration(route.every)}, has the {runs} with samples that its baseline is approved "
                    f"from; keep them for {format_duration(runs * route.every)} at least, or lower "
                    "baseline.approve_after"
                )
        return retention

    @field_validator("routes")
    @classmethod
    def _twins_are_nobody_s_replicas(cls, routes: tuple[Route, ...]) -> tuple[Route, ...]:
        replicas = {replica: route.name for route in routes for replica in route.listed}
        for route in routes:
            if route.plain_twin in replicas:
                raise ValueError(
                    f"{route.plain_twin!r}, the plain twin of {route.name}, is a replica of "
                    f"{replicas[route.plain_twin]}; a plain twin does not speculate and is nobody's replica"
                )
        return routes

    @field_validator("routes")
    @classmethod
    def _distinct_names(cls, routes: tuple[Route, ...]) -> tuple[Route, ...]:
        names = [route.name for route in routes]
        for position, name in enumerate(names):
            if name in names[:position]:
                raise ValueError(f"two routes are named {name!r}; a name is given once")
        return routes
