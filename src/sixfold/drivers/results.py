"""From what a run answered to what the server knows of it."""

from __future__ import annotations

from pathlib import Path

from sixfold.core.media import ports as media_ports
from sixfold.core.workers import ports
from sixfold.worker import protocol


class ForeignFile(ValueError):
    """A worker named a file that is not one of its run's."""


def outcome(reply: protocol.Reply, scratch: Path, prefix: str) -> ports.Outcome:
    """The reply as the port says it; raises `ForeignFile` for a name outside `scratch/<prefix>-…`."""
    match reply:
        case protocol.RunDone():
            files = tuple(_staged(file, scratch, prefix) for file in reply.files)
            return ports.RunCompleted(
                files=files,
                data=reply.data,
                quality=reply.quality,
                engine_version=reply.version,
                run_us=reply.run_us,
                upstream_cost_micros=reply.upstream_cost_micros,
                billed=reply.billed,
                lines=reply.lines,
                others=reply.others,
            )
        case protocol.RunFailedMessage():
            return ports.RunFailed(reply.message, reply.public, reply.detail, reply.unusable)
        case protocol.RunHalted():
            return ports.RunStopped()


def _staged(file: protocol.StagedMessage, scratch: Path, prefix: str) -> media_ports.StagedFile:
    if not file.name.startswith(f"{prefix}-") or "/" in file.name:
        raise ForeignFile(f"a worker named {file.name!r} as its file")
    return media_ports.StagedFile(scratch / file.name, file.content_type, file.info)


def remove_staged(scratch: Path, prefix: str) -> None:
    """Remove every file that the run with this prefix may have left."""
    for path in scratch.glob(f"{prefix}-*"):
        path.unlink(missing_ok=True)
