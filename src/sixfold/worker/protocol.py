"""What the server and a worker say to each other: small msgpack frames; bytes travel as files.

    server → worker   Run · Cancel · Leave · Steps
    worker → server   Ready | Unready, then for each Run: (Progress | Log)* and one of Done, Fail, Halted,
                      and for each Steps: Took
    server → zygote   Spawn (with two file descriptors) · Kill
    zygote → server   Booted, then for each Spawn: Born? and one Exited

A worker with one lane sends its log on its output pipe, with whatever libraries print: in order, and safe
when the worker crashes. One with several lanes sends `LogMessage`, so that each line finds its own run; what
libraries print then belongs to none. A frame on a worker's socket is a little-endian length of four bytes
and that much msgpack; on the zygote's socket one record is one message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from sixfold.core.accounts.charges import LineItem

MAX_FRAME_BYTES = 64 << 20
MAX_RECORD_BYTES = 64 << 10
_HEADER_BYTES = 4

Failpoint = Literal["fail", "hang", "crash"]


class WorkerMessage(msgspec.Struct, frozen=True, array_like=True, tag_field="type"):
    """One thing said; a subclass's name is its tag."""


# -- server -> worker ----------------------------------------------------------------------------


class RunMessage(WorkerMessage, frozen=True, array_like=True, tag="run"):
    """Run this task; `number` counts the runs of this worker and names its files."""

    number: int
    task: str
    model: str
    inputs: dict[str, Any]
    files: dict[str, str]
    failpoint: Failpoint | None = None


class CancelMessage(WorkerMessage, frozen=True, array_like=True, tag="cancel"):
    """The run with this number is no longer wanted."""

    number: int


class LeaveMessage(WorkerMessage, frozen=True, array_like=True, tag="leave"):
    """Go when what was asked before is done."""


class StepMessage(msgspec.Struct, frozen=True, array_like=True):
    """One step of a session (`core.sessions.engine`); its state is msgpack of its own."""

    model: str
    inputs: dict[str, Any]
    state: bytes | None
    keys: list[str]
    prompt: str | None
    waypoints: list[tuple[float, float]] | None
    fps: int
    ticks: int
    draw: bool
    failpoint: Failpoint | None = None


class StepsMessage(WorkerMessage, frozen=True, array_like=True, tag="steps"):
    """Take a step of each of some sessions; `number` counts with the runs."""

    number: int
    steps: list[StepMessage]


# -- worker -> server ----------------------------------------------------------------------------


class WorkerReady(WorkerMessage, frozen=True, array_like=True, tag="ready"):
    """The engine is built."""

    name: str
    version: str


class StartFailed(WorkerMessage, frozen=True, array_like=True, tag="unready"):
    """The engine could not be built, and why."""

    reason: str


class ProgressMessage(WorkerMessage, frozen=True, array_like=True, tag="progress"):
    """So much of a run is done, from 0 to 1."""

    number: int
    fraction: float


class LogMessage(WorkerMessage, frozen=True, array_like=True, tag="log"):
    """One line of a run that shares its worker with others."""

    number: int
    line: str


class StagedMessage(msgspec.Struct, frozen=True, array_like=True):
    """One file in the scratch folder, by name."""

    name: str
    content_type: str
    info: dict[str, Any]


class RunDone(WorkerMessage, frozen=True, array_like=True, tag="done"):
    """The engine returned."""

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


class RunFailedMessage(WorkerMessage, frozen=True, array_like=True, tag="fail"):
    """The engine raised; `public`: the user may read the message; `unusable`: the input was at fault."""

    number: int
    message: str
    public: bool
    detail: str = ""
    unusable: bool = False


class RunHalted(WorkerMessage, frozen=True, array_like=True, tag="halted"):
    """The engine stopped because the run was canceled."""

    number: int


class StepResults(WorkerMessage, frozen=True, array_like=True, tag="stepped"):
    """Where things stand after a step, its poses as JSON, and its frame, encoded, or nothing."""

    state: bytes
    poses: list[bytes]
    image: bytes = b""
    format: str = ""
    width: int = 0
    height: int = 0


class TimingMessage(WorkerMessage, frozen=True, array_like=True, tag="took"):
    """What came of `StepsMessage`, in their order.

    A `RunFailedMessage` ends one session, and its number is its place.
    """

    number: int
    answers: list[StepResults | RunFailedMessage]


# -- server <-> zygote ---------------------------------------------------------------------------


class SpawnWorker(WorkerMessage, frozen=True, array_like=True, tag="spawn"):
    """Fork a worker; its socket and the write end of its output pipe come along.

    `environment` is added to what its parent has. `resident`: its parent imports the engine's module first,
    once for all workers. `serves`: the factory is called with the socket, and speaks a protocol of its own.
    """

    worker: str
    factory: str
    memory_bytes: int
    scratch: str
    niceness: int
    cpu_seconds: int = 0
    lanes: int = 1
    options: dict[str, Any] = {}
    environment: dict[str, str] = {}
    resident: bool = False
    serves: bool = False


class KillWorker(WorkerMessage, frozen=True, array_like=True, tag="kill"):
    """End this worker and whatever it has started."""

    worker: str


class ZygoteReady(WorkerMessage, frozen=True, array_like=True, tag="booted"):
    """The zygote has its libraries and takes requests."""


class WorkerSpawned(WorkerMessage, frozen=True, array_like=True, tag="born"):
    """This worker runs as process `pid`."""

    worker: str
    pid: int


class WorkerExited(WorkerMessage, frozen=True, array_like=True, tag="exited"):
    """This worker is gone and reaped, and how it ended."""

    worker: str
    reason: str


ToWorker = RunMessage | CancelMessage | LeaveMessage | StepsMessage
Reply = RunDone | RunFailedMessage | RunHalted
ToServer = (
    WorkerReady
    | StartFailed
    | ProgressMessage
    | LogMessage
    | RunDone
    | RunFailedMessage
    | RunHalted
    | TimingMessage
)
ToZygote = SpawnWorker | KillWorker
FromZygote = ZygoteReady | WorkerSpawned | WorkerExited


class FrameTooLarge(ValueError):
    """A frame is larger than the protocol allows."""


def _plain(value: object) -> object:
    """Let numpy's scalars and arrays through as plain numbers and lists."""
    convert = getattr(value, "tolist", None)
    if callable(convert):
        return convert()
    raise TypeError(f"{type(value).__name__} cannot be part of a result")


encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
"""One message as a record (no length before it)."""
written = msgspec.json.Encoder(enc_hook=_plain).encode
"""Plain data as JSON."""


def frame(message: WorkerMessage) -> bytes:
    """One message with its length before it; raises `FrameTooLarge`, and `TypeError` for foreign types."""
    body = encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise FrameTooLarge(f"{len(body)} bytes of data are more than {MAX_FRAME_BYTES}")
    return len(body).to_bytes(_HEADER_BYTES, "little") + body


class FramesMessage:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Each frame that is whole with `data`; raises `FrameTooLarge`."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _HEADER_BYTES:
                body = start + _HEADER_BYTES
                length = int.from_bytes(buffer[start:body], "little")
                if length > MAX_FRAME_BYTES:
                    raise FrameTooLarge(f"a frame claims {length} bytes")
                if len(buffer) < body + length:
                    break
                start = body + length
                yield bytes(buffer[body:start])
        finally:
            del buffer[:start]


to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
to_server: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer)
to_zygote: msgspec.msgpack.Decoder[ToZygote] = msgspec.msgpack.Decoder(ToZygote)
from_zygote: msgspec.msgpack.Decoder[FromZygote] = msgspec.msgpack.Decoder(FromZygote)
done: msgspec.msgpack.Decoder[RunDone] = msgspec.msgpack.Decoder(RunDone)
decode_plain = msgspec.msgpack.decode
