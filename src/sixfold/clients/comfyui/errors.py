"""Errors of ComfyUI as one-sentence messages for users."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sixfold.core.catalog.engines import EngineError

_MAX_TEXT = 240
# Characters of a message that are searched for the first line, and of a name.
_MAX_PARSED, _MAX_NAME = 100_000, 500
# Callers must not see the operator's folders.
_FOLDERS = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?[\\/](?:[^\\/\s'\"]+[\\/])+")


class ComfyError(EngineError):
    """Raised if ComfyUI or the connection to it fails; the message is one sentence for the user."""


class ComfyUnreachable(ComfyError):
    """Raised if ComfyUI does not respond, or the connection to it fails."""


class ComfyTimeout(ComfyUnreachable):
    """Raised if ComfyUI does not respond in time."""


class ComfyRefused(ComfyError):
    """Raised if ComfyUI rejects the prompt; `unknown_value` is true if it names an unknown file or choice."""

    def __init__(self, message: str, *, unknown_value: bool = False) -> None:
        super().__init__(message)
        self.unknown_value = unknown_value


class ComfyNodeFailed(ComfyError):
    """Raised if a node fails; `class_type` is its class, and `memory` is true if memory ran out.

    `text` is the reason, which does not contain the class.
    """

    def __init__(self, text: str, node_id: str, class_type: str, *, memory: bool = False) -> None:
        begin = f"ComfyUI ran out of memory in {class_type}" if memory else f"ComfyUI failed in {class_type}"
        super().__init__(f"{begin}: {text}")
        self.text = f"ComfyUI ran out of memory: {text}" if memory else text
        self.node_id = node_id
        self.class_type = class_type
        self.memory = memory


class ComfyInterrupted(ComfyError):
    """Raised if the run was interrupted on the ComfyUI server."""


@contextmanager
def parse_errors() -> Iterator[None]:
    """Convert the errors of parsing an unexpected response into `ComfyError`."""
    try:
        yield
    except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError) as error:
        raise ComfyError("ComfyUI returned an unexpected response.") from error


def short_text(value: Any, limit: int = _MAX_NAME) -> str:
    """Return a text or a number as text of limited length; empty for other values, which may be large."""
    if isinstance(value, str):
        return value[:limit]
    return str(value) if isinstance(value, int | float) else ""


def first_line(text: str) -> str:
    """Return the first line of a message, shortened and without folders."""
    lines = text[:_MAX_PARSED].splitlines()
    line = next((line.strip() for line in lines if line.strip()), "no reason given")
    line = _FOLDERS.sub("", line)
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"


def node_failed(data: Mapping[str, Any]) -> ComfyNodeFailed:
    node_id, class_type = short_text(data.get("node_id")), short_text(data.get("node_type")) or "a node"
    text = first_line(short_text(data.get("exception_message"), _MAX_PARSED))
    if "OutOfMemory" in short_text(data.get("exception_type")) or "out of memory" in text.lower():
        short = "a smaller image, or fewer at a time, may fit."
        return ComfyNodeFailed(short, node_id, class_type, memory=True)
    return ComfyNodeFailed(f"{text.rstrip('.')}.", node_id, class_type)


def rejection(body: Any) -> ComfyRefused:
    """Return the error of a rejected prompt: the first problem, and the number of others."""
    body = body if isinstance(body, dict) else {}
    nodes = body.get("node_errors")
    problems = [
        (short_text(node.get("class_type")) or "a node", problem)
        for node in (nodes.values() if isinstance(nodes, dict) else ())
        for problem in node.get("errors") or ()
    ]
    if not problems:
        error = body.get("error")
        reason = short_text(error.get("message") if isinstance(error, dict) else error, _MAX_PARSED)
        return ComfyRefused(f"ComfyUI refused the graph: {first_line(reason).rstrip('.')}.")
    suffix = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
    unknown = any(problem.get("type") == "value_not_in_list" for _, problem in problems)
    return ComfyRefused(
        f"ComfyUI refused the graph: {_problem(*problems[0])}{suffix}.", unknown_value=unknown
    )


def _problem(class_type: str, problem: Mapping[str, Any]) -> str:
    extra = problem.get("extra_info") or {}
    name, value = extra.get("input_name"), extra.get("received_value")
    if problem.get("type") == "value_not_in_list" and name:
        return first_line(f"{class_type} has no {short_text(name)} {short_text(value)!r} there")
    text = first_line(short_text(problem.get("message"), _MAX_PARSED)).rstrip(".")
    return f"{class_type}: {text} ({short_text(name)})" if name else f"{class_type}: {text}"
