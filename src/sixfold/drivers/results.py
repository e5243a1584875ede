"""Conversion of replies from workers to outcomes of runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec

from sixfold.core.media import ports as media_ports
from sixfold.core.workers import ports
from sixfold.drivers import large_messages
from sixfold.worker import protocol, runner


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


# The decoder raises `RecursionError` for deeply nested values.
VIOLATIONS = (msgspec.MsgspecError, protocol.FrameTooLarge, ForeignFile, RecursionError)


def received(reply: protocol.Reply, staging: runner.FileStaging) -> protocol.Reply:
    """Return a reply as a server decodes it: with plain types, and within the limits on results.

    The files of a result that exceeds a limit are removed.
    """
    try:
        message = cast("protocol.Reply", large_messages.decode(protocol.encode(reply)))
    except VIOLATIONS as error:
        reason = f"The model returned an invalid result: {error}."
        message = protocol.RunFailedMessage(reply.number, reason, public=True)
    if isinstance(reply, protocol.RunDone) and not isinstance(message, protocol.RunDone):
        staging.remove(reply.files)
    return message


def encoded(outcome: ports.Outcome, names: Sequence[str]) -> bytes | None:
    """Encode an outcome whose files have these names as a reply; return None if the worker was lost."""
    match outcome:
        case ports.RunCompleted():
            fields = msgspec.structs.asdict(outcome)
            fields["files"] = [
                protocol.StagedMessage(name, file.content_type, dict(file.info))
                for name, file in zip(names, outcome.files, strict=True)
            ]
            return protocol.encode(protocol.RunDone(0, version=fields.pop("engine_version"), **fields))
        case ports.RunFailed(message, public, detail, unusable):
            return protocol.encode(protocol.RunFailedMessage(0, message, public, detail, unusable))
        case ports.RunStopped():
            return protocol.encode(protocol.RunHalted(0))
        case ports.WorkerLost():
            return None


def settle(future: asyncio.Future[ports.Outcome], result: ports.Outcome) -> None:
    """Set the outcome of a run; if it is set already, the run was abandoned, and its files are removed."""
    if not future.done():
        future.set_result(result)
    elif isinstance(result, ports.RunCompleted):
        for file in result.files:
            file.path.unlink(missing_ok=True)


def _staged(file: protocol.StagedMessage, scratch: Path, prefix: str) -> media_ports.StagedFile:
    return media_ports.StagedFile(staged_path(file.name, scratch, prefix), file.content_type, file.info)


def staged_path(name: str, scratch: Path, prefix: str) -> Path:
    """Return the path of a run's file; raises `ForeignFile` for a name that is not `<prefix>-…`."""
    if not name.startswith(f"{prefix}-") or "/" in name:
        raise ForeignFile(f"the worker named {name!r}, which is not a file of its run")
    return scratch / name


def remove_staged(scratch: Path, prefix: str) -> None:
    """Remove every file that the run with this prefix may have left."""
    for path in scratch.glob(f"{prefix}-*"):
        path.unlink(missing_ok=True)
