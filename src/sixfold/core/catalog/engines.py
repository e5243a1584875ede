"""What an engine is: the one small seam between a worker and a model.

An engine turns checked inputs into artifacts. It is built once per worker, run many times, and never sees
accounts, keys or the network. Its factory takes the options of its row in the catalogue as keywords.

Three shapes, told apart by the row's `kind`:

- `Engine` (`embedded`, `weights`) runs in a worker process, one task at a time;
- `batches.BatchEngine` is an `Engine` whose row has `lanes` above 1: its worker takes that many tasks at
  once and hands those of equal shape to `run_many` together;
- `remote.RemoteEngine` (`comfyui`, `provider`) waits for another machine: a coroutine in the server, many
  at a time, built with a `remote.Outside` before its options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from sixfold.core.accounts.charges import LineItem

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


class TaskRecord(msgspec.Struct, frozen=True):
    """A task as it is stored: its inputs, and the blob key of each media input."""

    inputs: dict[str, Any]
    files: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file that an engine made, encoded: its bytes are `data`, or the file at `path` (which is taken).

    A large file is better written under `Context.scratch` than held in memory. `info` has `width` and
    `height` in pixels, `duration` in seconds and `fps`, so that no caller has to decode the file.
    """

    content_type: str
    data: bytes = b""
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What a run gave: files, JSON data beside or instead of them, and the quality it reached.

    `upstream_cost_micros` is what another service took from the operator for it, where it says so;
    `billed` is how many priced units it came to (seconds, minutes); `lines` itemize micro-dollars of it.

    One artifact is the output itself, several are a list, or an object where their `info` has a `name`.
    `others` are the outputs after the first by their names, as `work.outputs` describes them.
    """

    artifacts: tuple[Artifact, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    quality: Quality | None = None
    upstream_cost_micros: int | None = None
    billed: float | None = None
    lines: tuple[LineItem, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Context(Protocol):
    """How a running engine speaks to the outside."""

    @property
    def scratch(self) -> Path:
        """An existing empty folder for this run's files; removed after it."""
        ...

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
