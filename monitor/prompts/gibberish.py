"""Tells text that nobody wrote (random tokens, letters, code points) from language and code, without a dictionary.

Random prompts measure nothing: a drafter cannot guess what has no structure. Every bound below lies between two
measured populations, windows of 15 to 250 words: about 9,000 natural texts in 93 languages and in code, and random
ones of the kinds named. Random words of one language are told apart only from 60 words on, or by the whole set.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from monitor.prompts.words import spaced, words

CHUNK_WORDS = 200
_VOWELS = frozenset("aeiou")
_BLOB = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9+/=]{8,}|[A-Za-z0-9+/=]{40,}")
_ONE_SCRIPT = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "KATAKANA-HIRAGANA": "CJK", "KANGXI": "CJK"}


def why_random(text: str) -> str | None:
    """What gives the text away as random, or None when at most a third of it looks so."""
    reasons = [_why_random_chunk(chunk) for chunk in _chunks(text)]
    found = [reason for reason in reasons if reason]
    return found[0] if 3 * len(found) > len(reasons) else None


def recurrence(found: Sequence[str]) -> float:
    """Share of the words that occurred before; language repeats itself, a draw from a vocabulary hardly."""
    return 1 - len(set(found)) / len(found) if found else 0.0


def _chunks(text: str) -> Iterator[str]:
    pieces = re.findall(r"\S+\s*", text)
    # The last chunk takes the rest, so that none is too short to be judged.
    for number in range(count := max(1, len(pieces) // CHUNK_WORDS)):
        end = None if number == count - 1 else (number + 1) * CHUNK_WORDS
        yield "".join(pieces[number * CHUNK_WORDS : end])


def _why_random_chunk(text: str) -> str | None:
    found = words(text)
    for check in _CHECKS:
        if reason := check(text, found):
            return reason
    return None


def _broken_characters(text: str, _: list[str]) -> str | None:
    """Natural texts have up to 1.4 percent (a message catalogue with a broken font), random code points 15 and more."""
    broken = sum(not c.isascii() and (c == "\ufffd" or unicodedata.category(c) in ("Cn", "Co", "Cs")) for c in text)
    broken += sum(c < " " and c not in "\n\r\t" for c in text)
    return "characters that belong to no script" if broken > max(1, 0.02 * len(text)) else None


def _rare_characters(text: str, _: list[str]) -> str | None:
    """The national character sets hold all that is in use; of random Han 30 percent is outside, of Hangul 79."""
    for name, low, high, codecs in (
        ("Han", "\u4e00", "\u9fff", ("gb2312", "big5", "shift_jis")),
        ("Hangul", "\uac00", "\ud7a3", ("iso2022_kr",)),
    ):
        signs = [c for c in text if low <= c <= high]
        rare = sum(not any(_encodable(c, codec) for codec in codecs) for c in signs)
        if len(signs) >= 15 and rare > 0.1 * len(signs):
            return f"{name} characters that are not in use"
    return None


def _encodable(character: str, codec: str) -> bool:
    try:
        character.encode(codec)
    except UnicodeEncodeError:
        return False
    return True


def _mixed_scripts(_: str, found: list[str]) -> str | None:
    """Languages share a text in stretches; random tokens change script at every other word."""
    if len(found) < 8 or all(word.isascii() for word in found):
        return None
    # Where a character stands for a word, a run of them counts once.
    runs = [_script(word[0]) for before, word in pairwise(["", *found]) if len(word) > 1 or len(before) != 1]
    changes = sum(before != after for before, after in pairwise(runs))
    return "scripts that change from word to word" if len(set(runs)) >= 4 and changes > len(runs) / 3 else None


def _script(character: str) -> str:
    name = unicodedata.name(character, "?").split(" ")[0]
    return _ONE_SCRIPT.get(name, name)


def _blobs(text: str, _: list[str]) -> str | None:
    """Keys, hashes and encoded bytes; a prompt may quote some, not consist of them."""
    blobs = sum(len(blob) for blob in _BLOB.findall(text))
    return "encoded bytes" if blobs > 0.6 * len(text) else None


def _flat_letters(_: str, found: list[str]) -> str | None:
    """Letters of a language are unevenly common: two are equal with p ≥ .050, uniform ones with p = .038."""
    letters = [letter for word in found for letter in word if "a" <= letter <= "z"]
    if len(letters) < 60 or _coincidence(letters) > 0.046:
        return None
    vowels = sum(letter in _VOWELS for letter in letters) / len(letters)
    return "letters that are all equally common" if vowels < 0.3 else None


def _independent_letters(_: str, found: list[str]) -> str | None:
    """In a language a letter depends on the one before, in any alphabet: ratio ≥ 1.27 from 200 pairs on, random 1.0."""
    pairs = [pair for word in found for pair in pairwise(word)]
    if len(pairs) < 200:
        return None
    expected = _coincidence([first for first, _ in pairs]) * _coincidence([second for _, second in pairs])
    return "letters that do not depend on each other" if _coincidence(pairs) < 1.2 * expected else None


def _coincidence(items: Sequence[object]) -> float:
    """Probability that two items drawn without replacement are equal."""
    total = len(items) * (len(items) - 1)
    return sum(count * (count - 1) for count in Counter(items).values()) / total if total else 0.0


def _long_words(_: str, found: list[str]) -> str | None:
    """Random tokens run into each other: 9.5 to 24 letters a word, where Finnish has at most 9.3."""
    judged = spaced(found)
    long = len(judged) >= 12 and sum(map(len, judged)) > 10 * len(judged)
    return "words glued together from pieces" if long and recurrence(judged) < 0.04 else None


def _no_recurrence(_: str, found: list[str]) -> str | None:
    """Of 60 words in sequence at least 3.1 percent repeat one before, of 80 at least 7.2; of random ones under 1.7."""
    scarce = len(found) >= 60 and recurrence(found) < min(0.06, len(found) / 2500)
    return "words that never recur" if scarce else None


_CHECKS: tuple[Callable[[str, list[str]], str | None], ...] = (
    _broken_characters,
    _rare_characters,
    _mixed_scripts,
    _blobs,
    _flat_letters,
    _independent_letters,
    _long_words,
    _no_recurrence,
)
