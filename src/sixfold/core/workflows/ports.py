"""Ports of a graph run: files, child runs, output storage, cache and events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from sixfold.core.catalog.prompt_words import NO_WORDS, PromptWords


class NodeFile(msgspec.Struct, frozen=True):
    """A file identified by content: `digest` is its BLAKE3 hash in hex, `path` a readable local copy."""

    digest: str
    content_type: str
    path: Path
    name: str = ""
    info: Mapping[str, Any] = {}


class NodeArtifact(msgspec.Struct, frozen=True):
    """A file that a node created: the bytes `data`, or the file at `path`, which is moved.

    `kind` is the ComfyUI list that shows it (`images`, `audio`, `video`, `3d`, `text`), `prefix` the start of
    its name. A `temporary` file is a preview, not a result.
    """

    content_type: str
    data: bytes = b""
    path: Path | None = None
    kind: str = "images"
    prefix: str = "output"
    temporary: bool = False
    info: Mapping[str, Any] = {}


class NodeResult(msgspec.Struct, frozen=True):
    """The result of a node: a value for each output, files, and UI data for clients (`text`, `animated`)."""

    outputs: tuple[Any, ...] = ()
    artifacts: tuple[NodeArtifact, ...] = ()
    ui: Mapping[str, Any] = {}


class ChildRequest(msgspec.Struct, frozen=True):
    """A run of another model; an input may be a `NodeFile`.

    `open` means that the run may add inputs that are not known yet.
    """

    model: str
    inputs: Mapping[str, Any]
    open: bool = False


class NodeChild(msgspec.Struct, frozen=True):
    """The result of the child prediction `id`; `preview` is True if a preview engine produced it.

    `words` are the words of its prompt that the engine understood and ignored.
    """

    files: tuple[NodeFile, ...] = ()
    data: Mapping[str, Any] = {}
    preview: bool = False
    words: PromptWords = NO_WORDS
    id: str = ""


class NodeContext(Protocol):
    """The services that a running node may use. All methods except `child` may be called from a thread."""

    @property
    def node_id(self) -> str:
        """The node's id in its graph."""
        ...

    @property
    def scratch(self) -> Path:
        """An existing folder for this run's files, which is removed after the run."""
        ...

    def progress(self, value: float, maximum: float = 1.0) -> None:
        """Report progress; raises `engines.Canceled` if the run was canceled."""
        ...

    def preview(self, data: bytes, content_type: str = "image/jpeg") -> None:
        """Send a preview image of the current state."""
        ...

    def image(self, data: bytes, content_type: str = "image/png") -> None:
        """Send a finished image to connected clients without storing it."""
        ...

    def file(self, data: bytes | Path, content_type: str) -> NodeFile:
        """Return a file from bytes, or from a path in `scratch`."""
        ...

    def copy(self, file: NodeFile) -> Path:
        """Return a copy of a file in `scratch`, for an artifact."""
        ...

    async def child(self, request: ChildRequest) -> NodeChild:
        """Run another model as part of this run."""
        ...


Run = Callable[..., "NodeResult | Sequence[Any] | Awaitable[NodeResult | Sequence[Any]]"]


class NodeChildren(Protocol):
    """Runs child predictions of a graph and charges them to the graph's account, within its hold."""

    async def run(
        self, node_key: str, model: str, inputs: Mapping[str, Any], progress: Callable[[float], None]
    ) -> NodeChild:
        """Run a child prediction of a node; raises `EngineFailed`, `EngineUnavailable` or `InvalidInput`.

        Its id is derived from the parent's and `node_key`, so that a resumed parent finds it. Canceling the
        coroutine cancels the prediction.
        """
        ...


class NodeFiles(Protocol):
    """Finds the files that inputs name: by URL, by upload id, or by a name from `/upload/image`."""

    async def find(self, name: str, kind: str) -> NodeFile:
        """Return the file; raises a `BadRequest` or `NotFound` with a message for the user."""
        ...


class OutputStore(Protocol):
    """Stores the files that nodes create."""

    async def keep(self, node_id: str, artifact: NodeArtifact, *, preview: bool) -> Mapping[str, Any]:
        """Store a file; the result (`filename`, …) is added to the node's `ui` under the file's kind.

        `preview` is True if a preview engine contributed to it.
        """
        ...


class CachedOutput(msgspec.Struct, frozen=True):
    """A cached node output: packed values (None: only the UI data is stored).

    `preview` is True if a preview engine contributed to it; `words` are the words of the prompts that led to
    the output.
    """

    packed: bytes | None
    ui: Mapping[str, Any]
    preview: bool = False
    words: PromptWords = NO_WORDS


# Begins the keys of records that a run has paid for a node, which is not an output of the node.
PAYMENT_PREFIX = "paid:"


class NodeCachePort(Protocol):
    """The cached node outputs of one account by key; they survive restarts."""

    async def find(self, keys: Sequence[str]) -> Mapping[str, CachedOutput]: ...

    async def keep(self, entries: Mapping[str, CachedOutput]) -> None:
        """Store outputs; large ones may be dropped."""
        ...


class ListValue(tuple[Any, ...]):
    """A list of values that later nodes process one by one (ComfyUI's OUTPUT_IS_LIST)."""

    __slots__ = ()


class ValuePacker(Protocol):
    """Serializes node values; a value that cannot be packed is not cached."""

    def pack(self, values: Sequence[Any]) -> bytes | None:
        """Return bytes for `unpack`, or None if a value cannot be packed."""
        ...

    def unpack(self, data: bytes) -> tuple[Any, ...]: ...

    def small(self, data: bytes) -> tuple[Any, ...] | None:
        """Return the values if all are numbers or strings, otherwise None without unpacking them."""
        ...

    def weigh(self, value: Any) -> int:
        """Return the approximate memory of a value in bytes."""
        ...


class NodeEvent(msgspec.Struct, frozen=True):
    """An event of a run: ComfyUI's name for it, and its data without `prompt_id`.

    `binary` contains the image of a `preview` or an `image` event (a finished image that is not stored).
    """

    type: str
    data: Mapping[str, Any] = {}
    binary: bytes = b""
