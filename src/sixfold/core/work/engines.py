"""What an engine is: the one small seam between a worker and a model.

An engine turns checked inputs into artifacts. It is built once per worker (`load` time is the cold
start), run many times, and never sees accounts, prices, keys or the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Quality = Literal["full", "preview"]


@dataclass(frozen=True, slots=True)
class Task:
    """One run, as an engine sees it.

    `inputs` are checked and complete (defaults filled in, an integer `seed` always present where the
    model takes one). `files` maps an input's name to a local file that holds its bytes; URLs
    have been fetched before. `model` is the service's name (`ra1`, `anime`, …): an engine that
    serves several models looks different for each.
    """

    id: str
    model: str
    inputs: Mapping[str, Any]
    files: Mapping[str, Path] = field(default_factory=dict[str, Path])


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file that an engine made, encoded: `data` are the file's bytes.

    `info` says what a caller would otherwise have to decode to learn (`width`, `height` in pixels,
    `duration` in seconds, `fps`), with the names that the interface uses.
    """

    content_type: str
    data: bytes
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Result:
    """What a run gave: files, JSON data beside or instead of them, and the quality it reached."""

    artifacts: tuple[Artifact, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    quality: Quality | None = None


class Context(Protocol):
    """How a running engine speaks to the outside."""

    def progress(self, fraction: float) -> None:
        """Report progress from 0 to 1; raises `Canceled` when the run is no longer wanted."""
        ...

    def log(self, line: str) -> None:
        """Add one line to the prediction's log."""
        ...


class Canceled(BaseException):
    """Raised inside an engine by `Context.progress` once the run is no longer wanted."""


class EngineError(Exception):
    """A failure that the user may read: its text becomes the prediction's `error`."""


class UnusableInput(EngineError):
    """An input that looked right from outside and turns out to be of no use: the caller's fault."""


class Engine(Protocol):
    """A model's implementation. `version` changes whenever the same inputs give other bytes."""

    name: str
    version: str

    def run(self, task: Task, context: Context) -> Result:
        """Turn `task` into a result; deterministic by inputs and seed for embedded engines."""
        ...
