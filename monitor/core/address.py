"""How a URL is shown to people: never with what may be a secret."""

from __future__ import annotations

import re

_USER = re.compile(r"^([a-z][a-z0-9+.-]*:/*)?.*@", re.IGNORECASE | re.DOTALL)
_QUERY = re.compile(r"([?#]).*$", re.DOTALL)


def shown_url(url: str) -> str:
    """The URL without user, password, query and fragment: http://…@host/path?…

    Takes any text, also one that is no URL: it is shown because something is wrong with it.
    """
    return _USER.sub(r"\1…@", _QUERY.sub(r"\1…", url))
