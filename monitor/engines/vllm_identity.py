"""Who is answering: the model cards, version and server info of vLLM as an identity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.core.records import Identity
from monitor.engines.lenient import section, text, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.engines.exposition import Metrics

MODEL_FREE = {"ngram", "ngram_gpu", "suffix"}
"""Methods whose `model` in the server's configuration is only the name of the method."""


def identity_of(card: Mapping[str, Any], version: Mapping[str, Any], server_info: Mapping[str, Any]) -> Identity:
    """The identity in a model card, the answer of /version and, from servers in development mode, /server_info."""
    config = section(server_info, "vllm_config")
    speculative = section(config, "speculative_config")
    method = text(speculative.get("method"))
    return Identity(
        engine="vllm" if card.get("owned_by") == "vllm" or version else None,
        version=text(version.get("version")),
        model=text(card.get("id")),
        root=text(card.get("root")),
        max_model_len=whole(card.get("max_model_len")),
        target=text(section(config, "model_config").get("model")),
        drafter=None if method in MODEL_FREE else text(speculative.get("model")),
        method=method,
        k=whole(speculative.get("num_speculative_tokens")),
        quantization=text(section(config, "model_config").get("quantization")),
        tensor_parallel=whole(section(config, "parallel_config").get("tensor_parallel_size")),
    )


def is_other_engine(card: Mapping[str, Any], version: Mapping[str, Any], metrics: Metrics | None) -> bool:
    """True when neither the card, /version nor /metrics bears a sign of vLLM."""
    return (
        card.get("owned_by") != "vllm"
        and "version" not in version
        and not any(name.startswith("vllm:") for name in metrics or ())
    )
