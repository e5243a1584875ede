"""Streams of the partial results of a job, followed by its complete result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from starlette.responses import Response, StreamingResponse

from sixfold import errors
from sixfold.api.gateway.chat_handler import KEEP_ALIVE
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai import media_jobs
from sixfold.core.predictions.events import PreviewCallback

_KEEP_ALIVE_SECONDS = 15.0
_HEADERS = {"Cache-Control": "no-store"}
Document = Mapping[str, Any]


class CompleteResult(NamedTuple):
    """The events of the complete result in pieces, and the headers of a response that has only them."""

    pieces: AsyncIterable[bytes]
    headers: Mapping[str, str]


def events(result: CompleteResult) -> Response:
    """Return the events of a complete result."""
    return StreamingResponse(result.pieces, 200, {**result.headers, **_HEADERS}, "text/event-stream")


async def respond(
    complete: Callable[[PreviewCallback], Coroutine[Any, Any, CompleteResult]],
    render: Callable[[bytes], Document | None],
    limit: int,
) -> Response:
    """Return the events of a job: `render` renders a partial result or skips it, `complete` runs the job.

    At most `limit` partial results wait for the client; further ones are left out, and not rendered. Raises
    the job's error if it fails before a partial result; a later error is an event. If the client
    disconnects, a queued job is canceled, and a running one continues and is charged.
    """
    partial: asyncio.Queue[Document] = asyncio.Queue(limit)

    def show(content: bytes) -> None:
        if not partial.full() and (document := render(content)) is not None:
            partial.put_nowait(document)

    job = asyncio.create_task(complete(show))
    try:
        first = await _next(partial, job)
    except BaseException:
        job.cancel()
        raise
    if first is None:
        return events(await job)
    return StreamingResponse(_stream(first, partial, job), 200, _HEADERS, "text/event-stream")


async def _stream(
    first: Document, partial: asyncio.Queue[Document], job: asyncio.Task[CompleteResult]
) -> AsyncGenerator[bytes]:
    document: Document | None = first
    try:
        while document is not None:
            yield media_jobs.event(document)
            while (document := await _next(partial, job, _KEEP_ALIVE_SECONDS)) is None and not job.done():
                yield KEEP_ALIVE
        try:
            result = await job
        except errors.SixfoldError as error:
            yield media_jobs.event({"type": "error", **openai_errors.document(error)})
            return
        async for piece in result.pieces:
            yield piece
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)


async def _next(
    partial: asyncio.Queue[Document], job: asyncio.Task[CompleteResult], seconds: float | None = None
) -> Document | None:
    """Return the next partial result; None if the job has ended without one, or after `seconds`."""
    if partial.empty() and not job.done():
        waiting = asyncio.create_task(partial.get())
        try:
            await asyncio.wait({waiting, job}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
        finally:
            waiting.cancel()
    return None if partial.empty() else partial.get_nowait()
