"""Transparent backgrounds: the model `remove-background` cuts out the subject of each image."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from sixfold import errors
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.media_jobs import (
    MediaJobRequest,
    MediaJobRunner,
    RunUnfinished,
    Successes,
)
from sixfold.core.accounts import idempotency
from sixfold.core.media.media import MediaSource
from sixfold.core.predictions.models import Prediction
from sixfold.web.services import WebServices

MODEL = "remove-background"
_INPUT = "image_url"
# The part of a request from which its cutouts are counted; it has at most 10 images.
_FIRST_PART = 10
_SERVER_ERROR = 500
_LOG = logging.getLogger(__name__)


class ImageCutouts:
    """Cuts out the subjects of images; each cutout is a prediction that is charged separately."""

    def __init__(self, services: WebServices, runner: MediaJobRunner) -> None:
        self._services = services
        self._runner = runner

    def check(self, job: MediaJobRequest, values: Mapping[str, Any]) -> None:
        """Check that subjects can be cut out, before an image is generated.

        Raises `InvalidRequest`, `Forbidden` and `EngineUnavailable`.
        """
        if values.get("output_format") not in (None, "", "png"):
            message = "A transparent background requires PNG: omit output_format, or set it to png"
            raise InvalidRequest(message, param="output_format")
        job.principal.permit(MODEL)
        self._services.catalog[MODEL].choose({}, self._services.predictions.terms)

    async def cut_out(self, job: MediaJobRequest, images: Successes) -> Successes:
        """Return the cutouts of images; an image whose cutout fails is refunded.

        The image remains charged and in the history if the account itself prevented the cutout, by a
        cancelation, a lack of credit or other runs that delayed it, since the account could already read it.
        If all cutouts fail, raises the error of one of them.
        """
        runs = [self._cut(job, index, image) for index, image in enumerate(images.predictions)]
        results = await asyncio.gather(*runs, return_exceptions=True)
        cut: list[Prediction] = []
        reason = images.reason
        for image, result in zip(images.predictions, results, strict=True):
            if isinstance(result, Successes):
                cut += result.predictions
                continue
            if not isinstance(result, errors.SixfoldError):
                _LOG.error("a background could not be removed", exc_info=result)
                result = errors.EngineFailed()
            reason = result
            if not isinstance(result, RunUnfinished) and result.status >= _SERVER_ERROR:
                await self._services.predictions.refund(image, "its background could not be removed")
        if not cut:
            raise reason or errors.EngineFailed
        return Successes(cut, reason)

    async def _cut(self, job: MediaJobRequest, index: int, image: Prediction) -> Successes:
        assert image.output is not None  # noqa: S101 - it succeeded
        file = image.output.files[0]
        source = MediaSource(file.blob, file.content_type, file.size)
        part = idempotency.part_id(job.idempotency_id, _FIRST_PART + index)
        cut = MediaJobRequest(
            job.principal,
            job.request_id,
            MODEL,
            {_INPUT: source.blob},
            sources={_INPUT: source},
            idempotency_id=part,
        )
        return await self._runner.run(cut)
