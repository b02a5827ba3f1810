"""Reads a YAML file and remembers the line of every key, so that a problem found later can be pointed at."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Where = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One thing to change in one file; as text `routes.yaml:7: routes[0].every: …`."""

    file: str
    where: Where
    message: str
    line: int | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(filter(None, (place, spelled(self.where), self.message)))


@dataclass
class Document:
    """The content of one YAML file: plain values, and the line (from 1) of each of them."""

    file: str
    data: Any = None
    lines: dict[Where, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, where: Where, message: str) -> Problem:
        """A problem at `where`, with the line of the nearest key that is in the file."""
        known = next((where[:end] for end in range(len(where), 0, -1) if where[:end] in self.lines), None)
        return Problem(self.file, where, message, None if known is None else self.lines[known])

    def read(self, text: str) -> None:
        """Fills `data` and `lines`; a syntax error or a key given twice is added to `problems`."""
        try:
            loader = yaml.SafeLoader(text)
        except yaml.reader.ReaderError as error:
            said = f"not valid YAML: character {chr(error.character)!r} is not allowed"
            self.problems.append(Problem(self.file, (), said, text.count("\n", 0, error.position) + 1))
            return
        try:
            node = loader.get_single_node()
            self.data = None if node is None else self._value(loader, node, ())
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else None
            self.problems.append(Problem(self.file, (), f"not valid YAML: {error.problem or error.context}", line))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            self.problems.append(Problem(self.file, (), f"not valid YAML: {error}"))
        finally:
            loader.dispose()

    def _value(self, loader: yaml.SafeLoader, node: yaml.Node, where: Where) -> Any:
        self.lines.setdefault(where, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return dict(self._pairs(loader, node, where))
        if isinstance(node, yaml.SequenceNode):
            return [self._value(loader, item, (*where, position)) for position, item in enumerate(node.value)]
        return loader.construct_object(node, deep=True)

    def _pairs(self, loader: yaml.SafeLoader, node: yaml.MappingNode, where: Where) -> Iterator[tuple[Any, Any]]:
        self._refuse_duplicates(node, where)
        loader.flatten_mapping(node)  # resolves `<<: *anchor`
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else str(key_node.start_mark)
            self.lines[*where, key] = key_node.start_mark.line + 1
            yield key, self._value(loader, value_node, (*where, key))

    def _refuse_duplicates(self, node: yaml.MappingNode, where: Where) -> None:
        seen: dict[str, int] = {}
        for key_node, _ in node.value:
            line = key_node.start_mark.line + 1
            if isinstance(key_node, yaml.ScalarNode) and key_node.value in seen:
                message = f"given twice, first on line {seen[key_node.value]}"
                self.problems.append(Problem(self.file, (*where, key_node.value), message, line))
            elif isinstance(key_node, yaml.ScalarNode):
                seen[key_node.value] = line


def read_document(path: Path) -> Document:
    """The file's content, or a document whose `problems` say why there is none."""
    document = Document(path.name)
    try:
        document.read(path.read_text(encoding="utf-8"))
    except OSError as error:
        document.problems.append(Problem(path.name, (), _unreadable(path, error)))
    except UnicodeDecodeError:
        document.problems.append(Problem(path.name, (), "is not text in UTF-8"))
    if not document.problems and not isinstance(document.data, Mapping):
        found = "is empty" if document.data is None else "is not a mapping of keys to values"
        document.problems.append(Problem(path.name, (), f"{found}; docs/configuration.md lists its keys"))
    return document


def _unreadable(path: Path, error: OSError) -> str:
    if not isinstance(error, FileNotFoundError):
        return f"cannot be read in {path.parent}: {error.strerror}"
    other = path.with_suffix(".yml")
    hint = f" ({other.name} is there: rename it)" if other.exists() else ""
    return (
        f"not found in {path.parent}{hint}; name the directory that holds routes.yaml and alerting.yaml "
        "with --config DIR or SPECWATCH_CONFIG"
    )


def spelled(where: Where) -> str:
    """`("routes", 0, "every")` as people write it: `routes[0].every`."""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
