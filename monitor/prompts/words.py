"""Cuts text of any script, or code, into the words that prompts are compared by."""

import re
import unicodedata

# Thai, Lao, Tibetan, Myanmar, Khmer, kana and Han write no spaces between words: there a character stands for a word.
_UNSPACED = r"\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W\d_{_UNSPACED}]+")
_WORD_OR_NUMBER = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_SPACED = re.compile(rf"[^{_UNSPACED}\uac00-\ud7a3]{{2,}}|[a-z]")


def words(text: str) -> list[str]:
    """The words in order, without case, accents and numbers."""
    return _WORD.findall(_plain(text))


def words_and_numbers(text: str) -> list[str]:
    """As `words`, with numbers; two texts with equal lists ask the same."""
    return _WORD_OR_NUMBER.findall(_plain(text))


def spaced(found: list[str]) -> list[str]:
    """Those of the words whose length in letters says something: not Han, kana, Hangul and the like."""
    return [word for word in found if _SPACED.fullmatch(word)]


def _plain(text: str) -> str:
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", "".join(c for c in apart if c.isascii() or unicodedata.category(c)[0] != "M"))
