"""Signatures of web hooks as Standard Webhooks has them, so that its libraries check ours. Pure.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from monitor.errors import ConfigError

PREFIX = "whsec_"
MIN_KEY_BYTES = 24
"""The specification asks for a key of 24 to 64 bytes."""


def signed_headers(secret: str, message_id: str, sent_at: int, body: bytes) -> dict[str, str]:
    """The three headers of a message sent at `sent_at`, in seconds since 1970.

    `secret` is `whsec_` and the key in base64. Raises ConfigError, which does not quote it, when it is not.
    """
    content = f"{message_id}.{sent_at}.".encode() + body
    digest = hmac.new(_key(secret), content, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(sent_at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or len(key) < MIN_KEY_BYTES:
        raise ConfigError(
            f"the signing secret is not {PREFIX} followed by a key of {MIN_KEY_BYTES} bytes or more in base64; "
            f"make one with: echo {PREFIX}$(openssl rand -base64 32)"
        )
    return key
