"""Structured output and tools of a prompt: keys of OpenAI's API that are sent with it as they stand in its file.

They say which tokens an answer may have, which moves acceptance, so they are part of what identifies a set.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from monitor.prompts.sets import Prompt

KEYS = ("response_format", "tools", "tool_choice")
ONLY_CHAT = frozenset({"tools", "tool_choice"})
TOOL_CHOICES = ("auto", "none", "required")


def request_keys(record: Mapping[str, Any], turns: int) -> dict[str, Any]:
    """Those of KEYS that the object has and that are not null. Raises ValueError saying what is wrong with one."""
    found = {key: record[key] for key in KEYS if record.get(key) is not None}
    if "response_format" in found:
        _check_response_format(found["response_format"])
    if "tools" in found:
        _check_tools(found["tools"], turns)
    if "tool_choice" in found:
        _check_tool_choice(found["tool_choice"], found.get("tools"))
    try:
        json.dumps(found, allow_nan=False).encode()
    except ValueError:
        raise ValueError(f"{' or '.join(found)} holds a number that JSON cannot carry: nan or infinity") from None
    return found


def keys_of(prompts: Iterable[Prompt]) -> tuple[str, ...]:
    """Which of KEYS any of the prompts has, in their order."""
    used = {key for prompt in prompts for key in prompt.request_keys}
    return tuple(key for key in KEYS if key in used)


def canonical(keys: Mapping[str, Any]) -> str:
    """One text for equal keys, however they are written; empty for none."""
    return json.dumps(keys, ensure_ascii=True, separators=(",", ":"), sort_keys=True) if keys else ""


def _check_response_format(value: Any) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        example = '{"type": "json_object"}'
        raise ValueError(f"response_format is not an object with a type; write for example {example}")  # noqa: TRY004 - collected
    if value["type"] == "json_schema":
        schema = value.get("json_schema")
        if not isinstance(schema, dict) or not isinstance(schema.get("schema"), dict):
            raise ValueError(
                'response_format has no schema; write {"type": "json_schema", "json_schema": {"name": …, "schema": …}}'
            )


def _check_tools(value: Any, turns: int) -> None:
    if not isinstance(value, list) or not value:
        raise ValueError("tools is not a list of at least one tool")
    for position, tool in enumerate(value, start=1):
        if _name_of(tool) is None:
            raise ValueError(
                f'tool {position} has no name; write {{"type": "function", "function": {{"name": …, "parameters": …}}}}'
            )
    if turns > 1:
        raise ValueError(f"has tools and {turns} turns; nobody answers a call of a tool, so that it has one turn only")


def _check_tool_choice(value: Any, tools: Any) -> None:
    if tools is None:
        raise ValueError("tool_choice is there without tools")
    if isinstance(value, str):
        if value not in TOOL_CHOICES:
            raise ValueError(f"tool_choice {value!r} is none of {', '.join(TOOL_CHOICES)}, nor a tool")
    elif _name_of(value) not in map(_name_of, tools):
        raise ValueError('tool_choice names none of the tools; write {"type": "function", "function": {"name": …}}')


def _name_of(tool: Any) -> str | None:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) and name.strip() else None
