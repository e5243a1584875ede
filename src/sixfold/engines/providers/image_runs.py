"""Runs of an image task at any provider; the engine of the provider only makes single calls.

The module splits the task into calls, downloads images that a provider returns as URLs, fits each image to
the size and format of the request, and sums the cost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sixfold import errors
from sixfold.core.catalog.engines import (
    MORE_IMAGES,
    Artifact,
    Canceled,
    Context,
    EngineError,
    Result,
    Task,
)
from sixfold.engines.image import sheet
from sixfold.engines.providers import image_io
from sixfold.engines.providers import requests as provider_requests
from sixfold.engines.providers.image_io import UploadImage
from sixfold.engines.providers.model_table import ModelCall, ModelRoute, UsedInputs
from sixfold.engines.providers.provider import ProviderRun
from sixfold.engines.providers.requests import ProviderTask
from sixfold.net import data_uris

if TYPE_CHECKING:
    from sixfold.engines.image.inpaint.fill_area import PreparedArea

_MAX_PARALLEL_CALLS = 4
_DOWNLOAD_ATTEMPTS = 3


class CallResult(msgspec.Struct, frozen=True):
    """Result of one call.

    An image is its bytes, its `data:` URI or its URL, which is downloaded through the guard, without the key.
    It may have any size and format. `seed` is the one that the provider used, if it has one.
    """

    images: Sequence[bytes | str]
    used: UsedInputs
    seed: int | None = None


Generate = Callable[[ModelCall, ProviderRun, Callable[[float], None]], Awaitable[CallResult]]
"""Makes one call at a provider; the last argument reports its progress from 0 to 1."""


async def generate_images(
    task: Task, context: Context, route: ModelRoute, generate: Generate, run: ProviderRun
) -> Result:
    """Return the images of a task, made by one or more calls of `generate`."""
    if "sources" in route.fields:
        names = sorted(name for name in task.files if name.startswith(MORE_IMAGES))
        paths = [task.files[name] for name in names]
        run.more = [await asyncio.to_thread(image_io.prepare_upload, path) for path in paths]
    else:
        task = await asyncio.to_thread(sheet.merge, task, context)
    request = provider_requests.parse(task)
    for name in route.unsupported_inputs(request):
        context.log(f"{run.title}'s {route.model} does not support {name}: it is left out")
    area = None
    if "mask" in route.fields:
        # Imported here, because only masks need OpenCV.
        from sixfold.engines.image.inpaint import fill_area

        area = await asyncio.to_thread(fill_area.prepare, task, context.scratch)
        run.upload, run.mask = [
            UploadImage(data, "image/png", area.size, area.size) for data in (area.image, area.mask)
        ]
    elif request.source is not None:
        run.upload = await asyncio.to_thread(image_io.prepare_upload, request.source)
    began = time.monotonic()
    async with run.time_limit():
        calls = route.calls(request, request.size or (run.upload.size if run.upload else None))
        results = await _generate_all(calls, run, generate)
        artifacts = await _artifacts(results, request, run, area)
    context.progress(1.0)
    cost = _cost(route, results)
    context.log(_summary(run.title, route, cost, time.monotonic() - began))
    data: dict[str, Any] = {"provider": route.provider, "provider_model": route.model}
    seeds = [result.seed for result in results if result.seed is not None]
    if seeds:
        data["seeds"] = seeds
    return Result(artifacts, data, "full", cost)


def _output_size(request: ProviderTask, upload: UploadImage | None) -> tuple[int, int] | None:
    """Return the exact output size, or None to keep the size that the provider returns."""
    if request.scale is not None or upload is None:
        return request.size
    return request.size or upload.source_size


async def _generate_all(calls: Sequence[ModelCall], run: ProviderRun, generate: Generate) -> list[CallResult]:
    """Make all calls, a few at a time; when one fails, the others are canceled at the provider too."""
    slots = asyncio.Semaphore(_MAX_PARALLEL_CALLS)

    async def generate_one(index: int, call: ModelCall) -> CallResult:
        async with slots:
            return await generate(call, run, lambda done: run.progress(index, done, len(calls)))

    tasks = [asyncio.ensure_future(generate_one(index, call)) for index, call in enumerate(calls)]
    try:
        return await asyncio.gather(*tasks)
    except asyncio.CancelledError:
        # `gather` has canceled them; a second cancel would interrupt their cancel calls to the provider.
        await asyncio.wait(tasks)
        raise
    except (EngineError, Canceled):
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise


async def _artifacts(
    results: Sequence[CallResult], request: ProviderTask, run: ProviderRun, area: PreparedArea | None
) -> tuple[Artifact, ...]:
    images = [image for result in results for image in result.images][: request.count]
    if len(images) < request.count:
        raise EngineError(f"{run.title} returned {len(images)} of {request.count} images; try again.")
    size = _output_size(request, run.upload)

    async def artifact(index: int, image: bytes | str) -> Artifact:
        content = image if isinstance(image, bytes) else await _download(image, index, run)
        if area is not None:
            return await asyncio.to_thread(area.finish, content, request.format, request.quality)
        return await asyncio.to_thread(
            image_io.encode_output, content, size, request.format, request.quality, run.title
        )

    return tuple(await asyncio.gather(*(artifact(index, image) for index, image in enumerate(images))))


async def _download(address: str, index: int, run: ProviderRun) -> bytes | Path:
    """Return the image at a URL that a provider returned, fetched through the guard, or in a `data:` URI."""
    max_bytes = run.limits.file_bytes
    if data_uris.is_data_uri(address):
        try:
            return (await asyncio.to_thread(data_uris.parse_data_uri, address, max_bytes)).body
        except (errors.FetchFailed, errors.TooLarge) as error:
            raise EngineError(f"{run.title} returned an image that cannot be read; try again.") from error
    target = run.context.scratch / f"upstream-{index}"
    for attempts_left in reversed(range(_DOWNLOAD_ATTEMPTS)):
        try:
            await run.outside.download(address, target, max_bytes=max_bytes)
            break
        except EngineError as error:
            # The image is paid for: a failed fetch is repeated, a refused address is not.
            if not attempts_left or not isinstance(error.__cause__, errors.FetchFailed):
                raise
            await asyncio.sleep(run.limits.pause_seconds)
    return target


def _cost(route: ModelRoute, results: Sequence[CallResult]) -> int | None:
    costs = [route.cost.micros(result.used) for result in results]
    return sum(cost for cost in costs if cost is not None) if None not in costs else None


def _summary(title: str, route: ModelRoute, cost: int | None, seconds: float) -> str:
    amount = f"about {cost / 1_000_000:.6f}".rstrip("0") + " USD" if cost is not None else "an unknown amount"
    return f"{title}'s {route.model} took {seconds:.1f} s and cost the operator {amount}"
