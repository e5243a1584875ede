"""The protocol between the server and its workers: small msgpack frames, and files for contents.

    server → worker   run · cancel · leave · steps
    worker → server   ready | unready, then for each run: (progress | preview | log)* and one of done, fail,
                      halted, and for each steps: took
    server → zygote   spawn (with two file descriptors) · kill
    zygote → server   booted, then for each spawn: born? and one exited

A worker with one task writes its log to its output pipe, together with the output of libraries: in order, and
without loss if the worker crashes. A worker with several tasks sends `LogMessage`, so that each line is
assigned to its run; output of libraries is then not assigned to a run. A frame on a worker's socket is a
little-endian length of four bytes, then msgpack; on the zygote's socket, each record is one message.

Node workers have a separate format (`core.workflows.execution.node_frames`): their messages are untyped and
refer to raw binary segments, and the engines package, which reads them, must not import this package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from sixfold.core.accounts.charges import LineItem
from sixfold.core.catalog.prompt_words import NO_WORDS, PromptWords
from sixfold.core.sessions.engine import Controls

MAX_FRAME_BYTES = 64 << 20
MAX_RECORD_BYTES = 64 << 10
_HEADER_BYTES = 4
# Checked before the items are decoded; the limits of a session are lower.
_MAX_POSES, _MAX_ANSWERS = 10_000, 1_000

Failpoint = Literal["fail", "hang", "crash"]


class WorkerMessage(msgspec.Struct, frozen=True, array_like=True, tag_field="type"):
    """The base class of all messages; the tag identifies the message type."""


# -- server -> worker ----------------------------------------------------------------------------


class RunMessage(WorkerMessage, frozen=True, array_like=True, tag="run"):
    """Run this task; `number` counts the runs of this worker and is part of its file names."""

    number: int
    task: str
    model: str
    inputs: dict[str, Any]
    files: dict[str, str]
    failpoint: Failpoint | None = None


class CancelMessage(WorkerMessage, frozen=True, array_like=True, tag="cancel"):
    """Cancel the run with this number."""

    number: int


class LeaveMessage(WorkerMessage, frozen=True, array_like=True, tag="leave"):
    """Exit after finishing the earlier messages."""


class StepMessage(msgspec.Struct, frozen=True, array_like=True):
    """One step of a session (`core.sessions.engine`); `state` is encoded with msgpack."""

    model: str
    inputs: dict[str, Any]
    state: bytes | None
    controls: Controls
    fps: int
    ticks: int
    draw: bool
    failpoint: Failpoint | None = None


class StepsMessage(WorkerMessage, frozen=True, array_like=True, tag="steps"):
    """Run one step for each session; `number` is counted together with the runs."""

    number: int
    steps: list[StepMessage]


# -- worker -> server ----------------------------------------------------------------------------


class WorkerReady(WorkerMessage, frozen=True, array_like=True, tag="ready"):
    """The engine is loaded."""

    name: str
    version: str


class StartFailed(WorkerMessage, frozen=True, array_like=True, tag="unready"):
    """The engine could not be loaded, with the reason."""

    reason: str


class ProgressMessage(WorkerMessage, frozen=True, array_like=True, tag="progress"):
    """The progress of a run, from 0 to 1."""

    number: int
    fraction: float


class PreviewMessage(WorkerMessage, frozen=True, array_like=True, tag="preview"):
    """A partial result of a run."""

    number: int
    content: bytes


class LogMessage(WorkerMessage, frozen=True, array_like=True, tag="log"):
    """A log line of a run that shares its worker with other runs."""

    number: int
    line: str


class StagedMessage(msgspec.Struct, frozen=True, array_like=True):
    """A file in the scratch folder, by name."""

    name: str
    content_type: str
    info: dict[str, Any]


class RunDone(WorkerMessage, frozen=True, array_like=True, tag="done"):
    """The result of an engine that has returned."""

    number: int
    files: list[StagedMessage]
    data: dict[str, Any]
    quality: Literal["full", "preview"] | None
    version: str
    run_us: int
    upstream_cost_micros: int | None = None
    billed: float | None = None
    lines: tuple[LineItem, ...] = ()
    others: dict[str, Any] = {}
    words: PromptWords = NO_WORDS


class RunFailedMessage(WorkerMessage, frozen=True, array_like=True, tag="fail"):
    """The error that an engine raised.

    `public` marks a message that the user may read, `unusable` an error caused by the input.
    """

    number: int
    message: str
    public: bool
    detail: str = ""
    unusable: bool = False


class RunHalted(WorkerMessage, frozen=True, array_like=True, tag="halted"):
    """The engine stopped because the run was canceled."""

    number: int


class StepDone(WorkerMessage, frozen=True, array_like=True, tag="stepped"):
    """The result of one step: the encoded state, its poses as JSON, and its encoded frame, if any."""

    state: bytes
    poses: Annotated[list[bytes], msgspec.Meta(max_length=_MAX_POSES)]
    image: bytes = b""
    format: str = ""
    width: int = 0
    height: int = 0
    words: PromptWords | None = None


class StepsDone(WorkerMessage, frozen=True, array_like=True, tag="took"):
    """The results of the steps of a `StepsMessage`, in the same order.

    A `RunFailedMessage` ends one session; the number of the message is the index of the step.
    """

    number: int
    answers: Annotated[list[StepDone | RunFailedMessage], msgspec.Meta(max_length=_MAX_ANSWERS)]


# -- server <-> zygote ---------------------------------------------------------------------------


class SpawnWorker(WorkerMessage, frozen=True, array_like=True, tag="spawn"):
    """Fork a worker; its socket and the write end of its output pipe are sent with the message.

    `environment` is added to the parent's environment. If `resident` is set, the parent first imports the
    engine's module, once for all workers. If `serves` is set, the factory is called with the socket and uses
    a separate protocol.
    """

    worker: str
    factory: str
    memory_bytes: int
    scratch: str
    niceness: int
    cpu_seconds: int = 0
    max_tasks: int = 1
    options: dict[str, Any] = {}
    environment: dict[str, str] = {}
    resident: bool = False
    serves: bool = False


class KillWorker(WorkerMessage, frozen=True, array_like=True, tag="kill"):
    """Kill this worker and its child processes."""

    worker: str


class ZygoteReady(WorkerMessage, frozen=True, array_like=True, tag="booted"):
    """The zygote has loaded its libraries and accepts requests."""


class WorkerSpawned(WorkerMessage, frozen=True, array_like=True, tag="born"):
    """The worker is running as the process `pid`."""

    worker: str
    pid: int


class WorkerExited(WorkerMessage, frozen=True, array_like=True, tag="exited"):
    """The worker has ended and has been reaped, with the reason."""

    worker: str
    reason: str


ToWorker = RunMessage | CancelMessage | LeaveMessage | StepsMessage
Reply = RunDone | RunFailedMessage | RunHalted
ToServer = (
    WorkerReady
    | StartFailed
    | ProgressMessage
    | PreviewMessage
    | LogMessage
    | RunDone
    | RunFailedMessage
    | RunHalted
    | StepsDone
)
ToZygote = SpawnWorker | KillWorker
FromZygote = ZygoteReady | WorkerSpawned | WorkerExited


class FrameTooLarge(ValueError):
    """A frame is larger than the protocol allows."""


def _plain(value: object) -> object:
    """Convert NumPy scalars and arrays to plain numbers and lists."""
    convert = getattr(value, "tolist", None)
    if callable(convert):
        return convert()
    raise TypeError(f"values of type {type(value).__name__} cannot be part of a result")


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
encode = _encoder.encode
"""Encode one message as a record, without a length."""
encode_json = msgspec.json.Encoder(enc_hook=_plain).encode
"""Encode plain data as JSON."""


def frame(message: WorkerMessage) -> bytearray:
    """Encode one message with its length; raises `FrameTooLarge`, and `TypeError` for unsupported types."""
    data = bytearray()
    _encoder.encode_into(message, data, _HEADER_BYTES)
    length = len(data) - _HEADER_BYTES
    if length > MAX_FRAME_BYTES:
        raise FrameTooLarge(f"a message must be at most {MAX_FRAME_BYTES:,} bytes (got {length:,})")
    data[:_HEADER_BYTES] = length.to_bytes(_HEADER_BYTES, "little")
    return data


class FrameSplitter:
    """Splits a byte stream into frames: one encoded message each."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each frame completed by `data`; raises `FrameTooLarge`."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _HEADER_BYTES:
                body = start + _HEADER_BYTES
                length = int.from_bytes(buffer[start:body], "little")
                if length > MAX_FRAME_BYTES:
                    raise FrameTooLarge(f"a frame must be at most {MAX_FRAME_BYTES:,} bytes (got {length:,})")
                if len(buffer) < body + length:
                    break
                start = body + length
                # A slice of the buffer would be a second copy.
                with memoryview(buffer) as view:
                    frame_body = bytes(view[body:start])
                yield frame_body
        finally:
            del buffer[:start]


to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
to_server: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer)
to_zygote: msgspec.msgpack.Decoder[ToZygote] = msgspec.msgpack.Decoder(ToZygote)
from_zygote: msgspec.msgpack.Decoder[FromZygote] = msgspec.msgpack.Decoder(FromZygote)
decode_plain = msgspec.msgpack.decode
