"""The site of a simulated server: authentication, generation, and the small pages around it."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from monitor.errors import UsageError
from monitor.sim import admin, wire
from monitor.sim.answering import Answer, until_disconnect
from monitor.sim.behaviour import FaultKind
from monitor.sim.exposition import BLOCK_TOKENS, CACHE_BLOCKS, CONTENT_TYPE_LATEST, Page
from monitor.sim.requests import Limits, Refusal, read, refusal

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from monitor.sim.behaviour import Fault
    from monitor.sim.requests import Kind
    from monitor.sim.server import SimulatedServer

_GENERATION: dict[str, Kind] = {"/v1/chat/completions": "chat", "/v1/completions": "completion"}
_REJECTIONS = {
    429: ("Too many requests.", "TooManyRequestsError"),
    500: (wire.ENGINE_DEAD, "InternalServerError"),
    503: ("The server is overloaded. Please retry later.", "ServiceUnavailableError"),
}
_NOT_VLLM = "<!DOCTYPE html><html><head><title>Welcome</title></head><body><h1>It works!</h1></body></html>"
ADMIN_PATH = "/_sim"


class Site:
    """Every path of the server; `/_sim` alone is none of vLLM's."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        routes = [
            Route("/v1/models", self._models),
            Route("/version", self._version),
            Route("/health", self._health),
            Route("/load", self._load),
            Route("/metrics", self._metrics),
            Route("/server_info", self._server_info),
            Route(ADMIN_PATH, self._admin, methods=["GET", "POST"]),
        ]
        self._pages = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        if self._server.behaviour.not_vllm and path != ADMIN_PATH:
            await HTMLResponse(_NOT_VLLM)(scope, receive, send)
        elif path.startswith("/v1") and not self._authenticated(scope):
            await JSONResponse({"error": "Unauthorized"}, 401)(scope, receive, send)
        elif path in _GENERATION and scope["method"] == "POST":
            await self._generate(_GENERATION[path], scope, receive, send)
        elif path in _GENERATION:
            await JSONResponse({"detail": "Method Not Allowed"}, 405)(scope, receive, send)
        else:
            await self._pages(scope, receive, send)

    def _authenticated(self, scope: Scope) -> bool:
        key = self._server.config.api_key
        return key is None or (b"authorization", f"Bearer {key}".encode()) in scope["headers"]

    async def _generate(self, kind: Kind, scope: Scope, receive: Receive, send: Send) -> None:
        """Straight to the answer: a framework's layers would cost more than the simulation itself."""
        server = self._server
        body = await Request(scope, receive).body()
        fault = server.faults.strike()
        if fault is not None and fault.kind is FaultKind.REJECT:
            await _rejection(fault)(scope, receive, send)
            return
        if server.behaviour.engine_dead:
            await JSONResponse(wire.error_document(), 500)(scope, receive, send)
            return
        limits = Limits(server.config.model, server.config.max_model_len, bool(server.drafter.k))
        request = read(kind, body, limits)
        if isinstance(request, Refusal):
            await JSONResponse(request.document, request.status)(scope, receive, send)
            return
        rank = _rank(scope)
        if rank is not None and not 0 <= rank < len(server.engines):
            await _no_such_rank(rank, len(server.engines), stream=request.stream)(scope, receive, send)
            return
        request = replace(request, data_parallel_rank=rank)
        await until_disconnect(receive, Answer(server, request, fault, send).run())

    async def _models(self, _: Request) -> Response:
        config, now = self._server.config, int(time.time())
        permission = {
            "id": f"modelperm-{uuid.uuid4().hex[:16]}",
            "object": "model_permission",
            "created": now,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        card = {
            "id": config.model,
            "object": "model",
            "created": now,
            "owned_by": "vllm",
            "root": config.target.name,
            "parent": None,
            "max_model_len": config.max_model_len,
            "permission": [permission],
        }
        return JSONResponse({"object": "list", "data": [card]})

    async def _version(self, _: Request) -> Response:
        return JSONResponse({"version": self._server.config.version})

    async def _health(self, _: Request) -> Response:
        return Response(status_code=503 if self._server.behaviour.engine_dead else 200)

    async def _load(self, _: Request) -> Response:
        return JSONResponse({"server_load": sum(e.running + e.waiting for e in self._server.engines)})

    async def _metrics(self, _: Request) -> Response:
        server = self._server
        page = Page(server.config.model, server.engines, server.behaviour, server.started_seconds)
        return Response(page.text(), media_type=CONTENT_TYPE_LATEST)

    async def _server_info(self, request: Request) -> Response:
        """Only in dev mode, like vLLM's; the part of its configuration that says what is running."""
        if not self._server.config.dev_mode:
            raise HTTPException(404)
        document = _vllm_config(self._server)
        as_json = request.query_params.get("config_format") == "json"
        return JSONResponse({"vllm_config": document if as_json else str(document), "vllm_env": {}, "system_env": {}})

    async def _admin(self, request: Request) -> Response:
        """The state; a POST first applies the script in its body."""
        if request.method == "POST":
            try:
                admin.apply(self._server, json.loads(await request.body()))
            except (UsageError, ValueError) as error:
                return JSONResponse({"error": str(error)}, 400)
        return JSONResponse(admin.state(self._server))


async def _http_error(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else str(error)
    return JSONResponse({"detail": detail}, status)


def _rank(scope: Scope) -> int | None:
    """The data-parallel rank that the request asks for; what is no number counts for nothing, as in vLLM."""
    try:
        return int(dict(scope["headers"])[b"x-data-parallel-rank"])
    except (KeyError, ValueError):
        return None


def _no_such_rank(rank: int, ranks: int, *, stream: bool) -> Response:
    """As a real server says it: of a stream only once it has begun."""
    document = refusal(400, f"data_parallel_rank {rank} is out of range [0, {ranks}).").document
    if not stream:
        return JSONResponse(document, 400)
    return Response(f"data: {json.dumps(document)}\n\n".encode() + wire.DONE, media_type="text/event-stream")


def _rejection(fault: Fault) -> Response:
    message, kind = _REJECTIONS.get(fault.status, ("Refused.", "Error"))
    headers = {} if fault.retry_after_seconds is None else {"Retry-After": f"{fault.retry_after_seconds:g}"}
    return JSONResponse(refusal(fault.status, message, kind=kind).document, fault.status, headers)


def _vllm_config(server: SimulatedServer) -> dict[str, Any]:
    config, drafter = server.config, server.drafter
    speculation = {
        "num_speculative_tokens": drafter.k,
        "model": drafter.model,
        "method": drafter.method,
        "draft_tensor_parallel_size": 1,
        "quantization": None,
        "revision": None,
        "rejection_sample_method": "standard",
        "draft_sample_method": "greedy",
    }
    return {
        "model_config": {
            "model": config.target.name,
            "dtype": "torch.bfloat16",
            "revision": None,
            "max_model_len": config.max_model_len,
            "quantization": None,
            "served_model_name": config.model,
        },
        "cache_config": {"block_size": BLOCK_TOKENS, "enable_prefix_caching": True, "num_gpu_blocks": CACHE_BLOCKS},
        "parallel_config": {
            "tensor_parallel_size": 1,
            "pipeline_parallel_size": 1,
            "data_parallel_size": config.engines,
        },
        "scheduler_config": {"max_num_seqs": config.max_num_seqs, "policy": "fcfs", "stream_interval": 1},
        "speculative_config": speculation if drafter.k else None,
        "observability_config": {"per_request_spec_decode_metrics": config.per_request_counts},
        "instance_id": str(int(server.started_seconds * 1e9)),
    }
