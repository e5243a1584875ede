"""Streams of partial images, followed by the complete images."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.responses import Response, StreamingResponse

from sixfold import errors
from sixfold.api.gateway.chat_handler import KEEP_ALIVE
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai import media_jobs
from sixfold.core.predictions.events import PreviewCallback

MAX_PARTIAL_IMAGES = 3
_KEEP_ALIVE_SECONDS = 15.0
_HEADERS = {"Cache-Control": "no-store"}
Document = Mapping[str, Any]


class CompletedImages(NamedTuple):
    """The events of the complete images, and the headers of a response that has only them."""

    documents: Sequence[Document]
    headers: Mapping[str, str]


async def respond(
    complete: Callable[[PreviewCallback], Coroutine[Any, Any, CompletedImages]],
    partial: Callable[[bytes, int], Document],
) -> Response:
    """Return the events of a job: `partial` renders a partial image, `complete` runs the job.

    Raises the job's error if it fails before a partial image; a later error is an event. If the client
    disconnects, a queued job is canceled, and a running one continues and is charged.
    """
    images: asyncio.Queue[bytes] = asyncio.Queue(MAX_PARTIAL_IMAGES)

    def show(image: bytes) -> None:
        if not images.full():
            images.put_nowait(image)

    job = asyncio.create_task(complete(show))
    try:
        first = await _next(images, job)
    except BaseException:
        job.cancel()
        raise
    if first is None:
        completed = await job
        return media_jobs.events(completed.documents, completed.headers)
    return StreamingResponse(_stream(first, images, job, partial), 200, _HEADERS, "text/event-stream")


async def _stream(
    first: bytes,
    images: asyncio.Queue[bytes],
    job: asyncio.Task[CompletedImages],
    partial: Callable[[bytes, int], Document],
) -> AsyncGenerator[bytes]:
    image: bytes | None = first
    count = 0
    try:
        while image is not None:
            yield media_jobs.event(partial(image, count))
            count += 1
            while (image := await _next(images, job, _KEEP_ALIVE_SECONDS)) is None and not job.done():
                yield KEEP_ALIVE
        try:
            completed = await job
        except errors.SixfoldError as error:
            yield media_jobs.event({"type": "error", **openai_errors.document(error)})
            return
        for document in completed.documents:
            yield media_jobs.event(document)
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)


async def _next(
    images: asyncio.Queue[bytes], job: asyncio.Task[CompletedImages], seconds: float | None = None
) -> bytes | None:
    """Return the next partial image; None if the job has ended, or after `seconds`."""
    waiting = asyncio.create_task(images.get())
    try:
        await asyncio.wait({waiting, job}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else None
    finally:
        waiting.cancel()
