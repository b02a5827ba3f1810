"""The text the tiny models learn from: what every Debian machine with Python carries, and arithmetic made up here.

The domains (code, prose, arithmetic, and the three as chats) are predictable to different degrees, so that acceptance
differs by domain as it does with real models.
"""

from __future__ import annotations

import random
import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LIBRARY = Path(sysconfig.get_path("stdlib"))
CHARACTERS_PER_DOMAIN = 6_000_000
CHATS = 6000


@dataclass(frozen=True)
class Corpus:
    """Documents by domain; `chats` are single exchanges in the chat template's form."""

    code: list[str]
    prose: list[str]
    arithmetic: list[str]
    chats: list[str]

    def documents(self, every: int = 1) -> list[str]:
        """All documents, or every n-th of the plain ones, with the chats joined by six to training length."""
        joined = ["".join(self.chats[i : i + 6]) for i in range(0, len(self.chats), 6)]
        return self.code[::every] + self.prose[::every] + self.arithmetic[::every] + joined


def build_corpus() -> Corpus:
    """The same documents in the same order on machines with the same packages."""
    draw = random.Random(2)
    code, prose = _code(), _prose()
    arithmetic = ["".join(exchange(*_sum(draw)) for _ in range(20)) for _ in range(2500)]
    chats = _function_chats(code) + _continuation_chats(prose)
    draw.shuffle(chats)
    return Corpus(code, prose, arithmetic, chats[:CHATS])


def exchange(question: str, answer: str) -> str:
    """One question and answer as the chat template writes them."""
    return f"<|user|>\n{question}<|end|>\n<|assistant|>\n{answer}<|end|>\n"


def _library_sources() -> list[Path]:
    files = sorted([*LIBRARY.glob("*.py"), *LIBRARY.glob("*/*.py")])
    return [file for file in files if "/test" not in str(file) and "site-packages" not in str(file)]


def _code() -> list[str]:
    files = [file for file in _library_sources() if "encodings" not in str(file)]
    random.Random(1).shuffle(files)
    return _up_to_limit(text for text in map(_read, files) if text and text.isascii())


def _prose() -> list[str]:
    share = Path("/usr/share")
    files = [*sorted(share.glob("common-licenses/*")), *sorted(share.glob("doc/**/*.txt"))]
    files += sorted(share.glob("perl/*/pod/*.pod"))
    documents = [text for text in map(_read, files) if len(text) > 500]
    docstrings = [doc for file in _library_sources() for doc in re.findall(r'"""(.*?)"""', _read(file), re.DOTALL)]
    documents += [re.sub(r"[ \t]+", " ", doc) for doc in docstrings if len(doc) > 300 and doc.isascii()]
    return _up_to_limit(documents)


def _up_to_limit(documents: Iterable[str]) -> list[str]:
    kept, characters = [], 0
    for document in documents:
        kept.append(document)
        characters += len(document)
        if characters > CHARACTERS_PER_DOMAIN:
            break
    return kept


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _sum(draw: random.Random) -> tuple[str, str]:
    kind = draw.randint(0, 4)
    if kind == 0:
        a, b = draw.randint(0, 99), draw.randint(0, 99)
        return f"What is {a} + {b}?", f"{a} + {b} = {a + b}. The answer is {a + b}."
    if kind == 1:
        b, a = sorted((draw.randint(0, 99), draw.randint(0, 99)))
        return f"What is {a} - {b}?", f"{a} - {b} = {a - b}. The answer is {a - b}."
    if kind == 2:
        a, b = draw.randint(0, 12), draw.randint(0, 12)
        return f"What is {a} * {b}?", f"{a} * {b} = {a * b}. The answer is {a * b}."
    if kind == 3:
        start, step = draw.randint(0, 20), draw.randint(1, 9)
        terms = [str(start + i * step) for i in range(3, 3 + draw.randint(5, 25))]
        question = f"Continue the sequence: {start}, {start + step}, {start + 2 * step}"
        return question, f"The next terms are {', '.join(terms)}."
    last, factor = draw.randint(3, 12), draw.randint(2, 9)
    table = "\n".join(f"{factor} x {i} = {factor * i}" for i in range(1, last + 1))
    return f"Write the times table of {factor}.", table


def _function_chats(code: list[str]) -> list[str]:
    function = re.compile(r"(?:^|\n)((?:    )?def (\w+)\(.*?)(?=\n(?:    )?def |\nclass |\Z)", re.DOTALL)
    found = [match for text in code for match in function.findall(text)]
    return [
        exchange(f"Write a Python function named {name}.", body.rstrip())
        for body, name in found
        if 80 < len(body) < 900
    ]


def _continuation_chats(prose: list[str]) -> list[str]:
    paragraphs = [paragraph.strip() for text in prose for paragraph in re.split(r"\n\s*\n", text)]
    return [
        exchange("Continue the text: " + " ".join(paragraph.split()[:8]), paragraph)
        for paragraph in paragraphs
        if 200 < len(paragraph) < 1200
    ]
