"""The interface between a worker and a model.

An engine converts validated inputs into artifacts. It is created once per worker, runs many times, and has no
access to accounts, keys or the network. Its factory takes the options of its catalog entry as keyword
arguments.

The entry's `kind` determines the interface. An `Engine` (`embedded`, `weights`) runs in a worker process, one
task at a time. A `BatchEngine` has `max_tasks` above 1, and its worker passes tasks of equal shape to
`run_many` together. A `core.workers.remote_engines.RemoteEngine` (`comfyui`, `provider`) calls another
machine: it runs many coroutines in the server at the same time, and its factory takes `HostServices` before
the options.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol, runtime_checkable

import msgspec

from sixfold.core.accounts.charges import LineItem
from sixfold.core.catalog.prompt_words import NO_WORDS, PromptWords

Quality = Literal["full", "preview"]
# The prefix of the names of a task's images after its source image: `more_images.000` and so on.
MORE_IMAGES: Final = "more_images."


class Task(msgspec.Struct, frozen=True):
    """One run, in the form that an engine receives.

    `inputs` are validated and complete, with defaults, and an integer `seed` if the model has this input.
    `files` maps an input's name to a local file. `model` is the model's name (`ra1`, `anime`, …), because an
    engine that serves several models may behave differently for each.
    """

    id: str
    model: str
    inputs: Mapping[str, Any]
    files: Mapping[str, Path] = {}


class TaskRecord(msgspec.Struct, frozen=True, weakref=True):
    """A task as stored: its inputs, and the blob key of each media input."""

    inputs: dict[str, Any]
    files: dict[str, str] = {}


class Artifact(msgspec.Struct, frozen=True):
    """One encoded file that an engine produced: the bytes `data`, or the file `path`, which is moved.

    Write large files under `Context.scratch`. `info` contains `width`, `height` (pixels), `duration` (s),
    `fps`. `stored` is the blob key and size of a file that an engine in the server has stored with its
    manifest, instead of `data` and `path`.
    """

    content_type: str
    data: bytes = b""
    info: Mapping[str, Any] = {}
    path: Path | None = None
    stored: tuple[str, int] | None = None


class Result(msgspec.Struct, frozen=True):
    """The result of a run: files, JSON data, or both, and the quality.

    A single artifact is the output itself. Several artifacts are a list, or an object if their `info`
    contains a `name`. `upstream_cost_micros` is the amount that a provider charged the operator; `billed`
    counts priced units; `lines` itemize the price in micro-dollars; `others` are later outputs by name;
    `words` come from preview engines.
    """

    artifacts: tuple[Artifact, ...] = ()
    data: Mapping[str, Any] = {}
    quality: Quality | None = None
    upstream_cost_micros: int | None = None
    billed: float | None = None
    lines: tuple[LineItem, ...] = ()
    others: Mapping[str, Any] = {}
    words: PromptWords = NO_WORDS


class Context(Protocol):
    """The services that a running engine may use."""

    @property
    def scratch(self) -> Path:
        """An existing empty folder for this run's files; it is removed after the run."""
        ...

    def progress(self, fraction: float) -> None:
        """Report progress from 0 to 1; raises `Canceled` if the run was canceled."""

    def log(self, line: str) -> None:
        """Append a line to the prediction's log."""


@runtime_checkable
class PreviewContext(Protocol):
    """A context that can show partial results to a caller who waits for the result."""

    def preview(self, content: bytes) -> None:
        """Show a partial result, if the task requests one.

        It is an image (PNG or JPEG) for the input `partial_images`, or the index and the text of a segment of
        a transcript as a JSON array for the input `partial_text`.
        """


class Canceled(BaseException):
    """Raised inside an engine by `Context.progress` if the run was canceled."""


class EngineError(Exception):
    """An error whose message the user may read: it becomes the prediction's `error`."""


class UnusableInput(EngineError):
    """An input passed validation but cannot be processed."""


class Engine(Protocol):
    """The implementation of a model.

    `version` must change if the same inputs produce different bytes.
    """

    name: str
    version: str

    def run(self, task: Task, context: Context) -> Result:
        """Run `task` and return its result; embedded engines are deterministic for given inputs and seed."""
        ...


class BatchJob(msgspec.Struct, frozen=True):
    """One task of a batch and its context."""

    task: Task
    context: Context


class BatchEngine(Engine, Protocol):
    """An engine that runs tasks of equal shape faster together than one after another."""

    def shape(self, task: Task) -> Hashable:
        """Return the shape of a task: tasks of equal shape may run together; None runs alone."""
        ...

    def run_many(self, jobs: Sequence[BatchJob]) -> Sequence[Result | Exception | Canceled]:
        """Return each job's result, exception or `Canceled`, in order.

        Canceling one job does not affect the other jobs.
        """
        ...
