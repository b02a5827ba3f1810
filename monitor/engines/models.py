"""What /v1/models lists, and which of it is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monitor.engines.failures import failure
from monitor.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monitor.engines.base import Replica

MODELS_SHOWN = 8


async def get_models(replica: Replica) -> Any:
    """What /v1/models answers. Raises TargetError, `not_openai` where there is no such path."""
    try:
        return await replica.get_json("/v1/models")
    except TargetError as error:
        if error.reason != "not_found":
            raise
        raise failure("not_openai", replica.url, "there is no /v1/models") from None


def choose_model(listing: object, wanted: str | None, url: str) -> Mapping[str, Any]:
    """The card of the model to measure in what /v1/models answered.

    Several names of one model count as one. Raises `not_openai`, `model_not_served` or `several_models`.
    """
    data = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(data, list):
        raise failure("not_openai", url, "/v1/models does not answer with a list of models")
    cards = [card for card in data if isinstance(card, dict) and isinstance(card.get("id"), str)]
    served = ", ".join(card["id"] for card in cards[:MODELS_SHOWN]) + (" …" if len(cards) > MODELS_SHOWN else "")
    if wanted is not None:
        for card in cards:
            if card["id"] == wanted:
                return card
        raise failure("model_not_served", url, f"model {wanted!r} is not served; served: {served or 'none'}")
    if not cards:
        raise failure("model_not_served", url, "no model is served")
    if len({(card.get("root", card["id"]), card.get("parent")) for card in cards}) > 1:
        raise failure("several_models", url, f"several models are served: {served}")
    return cards[0]


def owner_in(listing: object) -> str | None:
    """Who owns the models that are listed, which is the engine's name with most engines; None where it is not told."""
    data = listing.get("data") if isinstance(listing, dict) else None
    owners = [card.get("owned_by") for card in data if isinstance(card, dict)] if isinstance(data, list) else []
    return next((owner for owner in owners if isinstance(owner, str)), None)
