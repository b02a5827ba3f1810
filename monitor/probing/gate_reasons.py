"""What the word of an invalid run, or of a server out of reach, says of the gate that measured it."""

from monitor.core.gate import GateReason
from monitor.engines.failures import GONE
from monitor.probing.outcome import IDENTITY_CHANGED

_REASONS = {
    "contaminated": GateReason.CONTAMINATED,
    "too_few_valid_prompts": GateReason.TOO_FEW_PROMPTS,
    IDENTITY_CHANGED: GateReason.IDENTITY_CHANGED,
    "model_not_served": GateReason.OTHER_MODEL,
    "speculates": GateReason.TWIN_SPECULATES,
    **dict.fromkeys(GONE - {"several_models", "model_not_served"}, GateReason.UNREACHABLE),
    **dict.fromkeys(("first_token_timeout", "stalled", "total_timeout", "server_error"), GateReason.UNREACHABLE),
    **dict.fromkeys(("cut_off", "aborted", "error_in_stream"), GateReason.UNREACHABLE),
}


def reason_of(word: str, server: str, other: GateReason = GateReason.RUN_INVALID) -> GateReason:
    """`server`: `candidate`, `reference` or `twin`. `other`: for any other word, which is told as it is."""
    if word == "no_speculation":
        return GateReason.REFERENCE_NO_SPECULATION if server == "reference" else GateReason.CANDIDATE_NO_SPECULATION
    return _REASONS.get(word, other)
