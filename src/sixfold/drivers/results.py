"""Conversion of replies from workers to outcomes of runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sixfold.core.media import ports as media_ports
from sixfold.core.workers import ports
from sixfold.worker import protocol


class ForeignFile(ValueError):
    """A worker named a file that does not belong to its run."""


def outcome(reply: protocol.Reply, scratch: Path, prefix: str) -> ports.Outcome:
    """Convert a reply to an outcome; raises `ForeignFile` for a file name that is not `<prefix>-…`."""
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
                words=reply.words,
            )
        case protocol.RunFailedMessage():
            return ports.RunFailed(reply.message, reply.public, reply.detail, reply.unusable)
        case protocol.RunHalted():
            return ports.RunStopped()


def settle(future: asyncio.Future[ports.Outcome], result: ports.Outcome) -> None:
    """Set the outcome of a run; if it is set already, the run was abandoned, and its files are removed."""
    if not future.done():
        future.set_result(result)
    elif isinstance(result, ports.RunCompleted):
        for file in result.files:
            file.path.unlink(missing_ok=True)


def _staged(file: protocol.StagedMessage, scratch: Path, prefix: str) -> media_ports.StagedFile:
    if not file.name.startswith(f"{prefix}-") or "/" in file.name:
        raise ForeignFile(f"the worker named {file.name!r}, which is not a file of its run")
    return media_ports.StagedFile(scratch / file.name, file.content_type, file.info)


def remove_staged(scratch: Path, prefix: str) -> None:
    """Remove every file that the run with this prefix may have left."""
    for path in scratch.glob(f"{prefix}-*"):
        path.unlink(missing_ok=True)
