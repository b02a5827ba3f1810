"""Files of other programs: read as text, JSON or Parquet, or refused with what was expected."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from monitor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NO_PYARROW = "Parquet needs pyarrow, which is not installed; install it with: pip install 'specwatch[parquet]'"


def read_text(path: Path) -> str:
    """The file's text, in UTF-8. Raises UsageError."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not text in UTF-8") from None


def read_json(path: Path) -> Any:
    """The JSON document in the file. Raises UsageError."""
    try:
        return json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is not one JSON document: {error}") from None


def read_json_lines(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Number and object of each line that is not empty. Raises UsageError naming the first that is no object."""
    found = []
    # Not splitlines(), which also cuts at separators that JSON allows inside a string.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise UsageError(f"{path}:{number}: is not valid JSON: {error}") from None
        if not isinstance(record, dict):
            raise UsageError(f"{path}:{number}: is not a JSON object")
        found.append((number, record))
    return found


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """The rows of a Parquet file. Raises UsageError, also when pyarrow is not installed."""
    parquet = _pyarrow_parquet()
    from pyarrow import ArrowException

    try:
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (ArrowException, OSError) as error:
        raise UsageError(f"{path}: cannot be read as Parquet: {error}") from None
    return rows


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> None:
    """One column per key of the first row; `kinds` has the type, in pyarrow's words, of those that may be all None.

    Without it such a column would have no type, and files of the same shape could not be read together. Raises
    UsageError when pyarrow is not installed.
    """
    parquet = _pyarrow_parquet()
    import pyarrow

    columns = {}
    for name in rows[0]:
        kind = pyarrow.type_for_alias(kinds[name]) if name in kinds else None
        columns[name] = pyarrow.array([row[name] for row in rows], type=kind)
    parquet.write_table(pyarrow.table(columns), path)


def _pyarrow_parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise UsageError(NO_PYARROW) from None
    return pyarrow.parquet
