"""Images in base64, read from the store in pieces, since one response can have hundreds of megabytes."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from sixfold import errors
from sixfold.api.gateway.openai import media_jobs
from sixfold.api.gateway.openai.media_jobs import MediaJobRunner
from sixfold.core.predictions.models import Prediction
from sixfold.web import responses
from sixfold.web.files import chained

# Base64 encodes groups of three bytes.
_GROUP = 3
_IMAGE, _END = b'"b64_json":"', b'"'
Pieces = AsyncGenerator[bytes]


class InlineImages:
    """Reads the images of predictions as base64."""

    def __init__(self, runner: MediaJobRunner) -> None:
        self._runner = runner

    async def open(self, predictions: Sequence[Prediction]) -> AsyncIterator[Pieces]:
        """Return the pieces of each readable image; others are refunded.

        Raises `StoreFailed` if all images are unreadable.
        """
        images = self._readable(predictions)
        async for first in images:
            return chained(first, images)
        raise errors.StoreFailed

    async def _readable(self, predictions: Sequence[Prediction]) -> AsyncGenerator[Pieces]:
        for prediction in predictions:
            pieces = self._pieces(prediction)
            try:
                first = await anext(pieces)
            except errors.StoreFailed:
                continue
            yield chained(first, pieces)

    async def _pieces(self, prediction: Prediction) -> Pieces:
        """Yield an image in base64; raises the errors of the runner."""
        rest = b""
        async for piece in self._runner.pieces(prediction):
            data = rest + piece
            whole = len(data) - len(data) % _GROUP
            rest = data[whole:]
            yield base64.b64encode(data[:whole])
        yield base64.b64encode(rest)


async def document(
    fields: Mapping[str, Any], images: AsyncIterator[Pieces], more: Callable[[int], Mapping[str, Any]]
) -> Pieces:
    """Yield a document whose empty list `data` is filled with images; `more` are fields for their number."""
    head, tail = responses.encode(fields).split(b"[]", 1)
    separator, count = head + b"[{", 0
    async for pieces in images:
        yield separator + _IMAGE
        async for piece in pieces:
            yield piece
        separator, count = _END + b"},{", count + 1
    last = responses.encode(more(count))
    yield _END + b"}]" + tail[:-1] + (b"," + last[1:] if len(last) > len(b"{}") else b"}")


async def events(images: AsyncIterator[Pieces], fields: Mapping[str, Any]) -> Pieces:
    """Yield an event for each image, in place of its empty text `b64_json`."""
    head, tail = media_jobs.event(fields).split(_IMAGE + _END, 1)
    async for pieces in images:
        yield head + _IMAGE
        async for piece in pieces:
            yield piece
        yield _END + tail
