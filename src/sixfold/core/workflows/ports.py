"""What a run needs of others: files, children, a place for what was made, a cache, and someone to tell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class NodeFile:
    """One file known by its content: `digest` is its BLAKE3 hash in hex, `path` a readable local copy."""

    digest: str
    content_type: str
    path: Path
    name: str = ""
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class NodeArtifact:
    """One file that a node made: its bytes are `data`, or the file at `path` (which is taken).

    `kind` is the list of ComfyUI's that it is shown in (`images`, `audio`, `video`, `3d`, `text`), `prefix`
    what its name begins with. What is `temporary` is a preview, and no result.
    """

    content_type: str
    data: bytes = b""
    path: Path | None = None
    kind: str = "images"
    prefix: str = "output"
    temporary: bool = False
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class NodeInputs:
    """What a node gave: a value for each output, files, and more for whoever watches (`text`, `animated`)."""

    outputs: tuple[Any, ...] = ()
    made: tuple[NodeArtifact, ...] = ()
    ui: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ChildRequest:
    """Work for one of the platform's models; an input may be a `NodeFile`.

    An order that is `open` may get inputs besides that only the run knows.
    """

    model: str
    inputs: Mapping[str, Any]
    open: bool = False


@dataclass(frozen=True, slots=True)
class NodeChild:
    """What a child prediction gave: its files, and its data; `preview` where a preview engine made them."""

    files: tuple[NodeFile, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    preview: bool = False


class NodeContext(Protocol):
    """How a running node speaks to the outside. All but `child` may be called from a thread."""

    @property
    def node_id(self) -> str:
        """The node's id in its graph."""
        ...

    @property
    def scratch(self) -> Path:
        """An existing folder for this run's files; removed after it."""
        ...

    def progress(self, value: float, maximum: float = 1.0) -> None:
        """Report progress; raises `engines.Canceled` when the run is no longer wanted."""
        ...

    def preview(self, data: bytes, content_type: str = "image/jpeg") -> None:
        """Show a picture of what is on its way."""
        ...

    def image(self, data: bytes, content_type: str = "image/png") -> None:
        """Send a finished picture to whoever watches, without keeping it."""
        ...

    def file(self, data: bytes | Path, content_type: str) -> NodeFile:
        """A file of bytes that are in memory or lie in `scratch`."""
        ...

    async def child(self, asked: ChildRequest) -> NodeChild:
        """Run one of the platform's models as part of this run."""
        ...


Run = Callable[..., "NodeInputs | Sequence[Any] | Awaitable[NodeInputs | Sequence[Any]]"]


class NodeChildren(Protocol):
    """Runs the platform's models for a graph, on its account and its hold."""

    async def run(
        self, node_key: str, model: str, inputs: Mapping[str, Any], progress: Callable[[float], None]
    ) -> NodeChild:
        """The ended child prediction of a node; raises `EngineFailed`, `EngineUnavailable`, `InvalidInput`.

        Its id comes of the parent's and of `node_key`, so that a resumed parent finds it. Canceling the
        coroutine cancels it.
        """
        ...


class NodeFiles(Protocol):
    """Finds the files that inputs name: a URL, an upload's id, or a name given to `/upload/image`."""

    async def find(self, name: str, kind: str) -> NodeFile:
        """The file; raises a `BadRequest` or `NotFound` whose sentence is for the user."""
        ...


class OutputStore(Protocol):
    """Keeps what nodes made."""

    async def keep(self, node_id: str, made: NodeArtifact, *, preview: bool) -> Mapping[str, Any]:
        """Keep a file; what it gives stands in the node's `ui` under the file's kind (`filename`, …).

        `preview`: a preview engine had a part in it.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """A node's outcome, as a cache keeps it: outputs packed into bytes (None: only what it showed).

    `preview`: a preview engine had a part in it.
    """

    packed: bytes | None
    ui: Mapping[str, Any]
    preview: bool = False


class NodeCachePort(Protocol):
    """Outcomes of nodes by their key, of one account; survives restarts."""

    async def find(self, keys: Sequence[str]) -> Mapping[str, StoredOutput]:
        """What is known of these keys."""
        ...

    async def keep(self, entries: Mapping[str, StoredOutput]) -> None:
        """Keep outcomes; big ones may be dropped."""
        ...


class ListValue(tuple[Any, ...]):
    """A list of values that the nodes after it take one by one (ComfyUI's OUTPUT_IS_LIST)."""

    __slots__ = ()


class ValuePacker(Protocol):
    """Turns nodes' values into bytes and back; a value that cannot be packed is not kept."""

    def pack(self, values: Sequence[Any]) -> bytes | None:
        """Bytes that `unpack` understands, or None."""
        ...

    def unpack(self, data: bytes) -> tuple[Any, ...]:
        """The values."""
        ...

    def small(self, data: bytes) -> tuple[Any, ...] | None:
        """The values where all are numbers or texts; None, without unpacking, for others."""
        ...

    def weigh(self, value: Any) -> int:
        """How many bytes of memory a value takes, roughly."""
        ...


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One thing that happened: ComfyUI's name for it and its data beside `prompt_id`.

    A `preview` or an `image` (a finished one that is not kept) is in `binary`.
    """

    type: str
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    binary: bytes = b""
