"""The run of an order at a provider, the same for all of them: split, ask, gather, fit, add up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sixfold import errors
from sixfold.clients.provider_client import ProviderLimits
from sixfold.core.catalog.engines import Artifact, Canceled, Context, EngineError, Result, Task
from sixfold.core.workers.remote_engines import HostServices
from sixfold.engines.providers import image_io
from sixfold.engines.providers import requests as provider_requests
from sixfold.engines.providers.image_io import UploadImage
from sixfold.engines.providers.model_table import ModelCall, ModelRoute, UsedInputs
from sixfold.engines.providers.requests import ProviderTask
from sixfold.net import data_uris

_AT_ONCE = 4
_TRIES = 3
_MOST_LINES = 100


@dataclass(frozen=True, slots=True)
class CallResult:
    """What one call gave: each picture as its bytes, or as the address (or `data:` URI) that holds it."""

    pictures: Sequence[bytes | str]
    used: UsedInputs
    seed: int | None = None


@dataclass(slots=True)
class RunContextImages:
    """What a call may use of its run: the way out, progress and log of the whole, and its limits."""

    title: str
    outside: HostServices
    context: Context
    limits: ProviderLimits
    sent: UploadImage | None = None
    _shares: dict[int, float] = field(default_factory=dict[int, float])
    _lines: int = 0

    def progress(self, call: int, fraction: float, calls: int) -> None:
        """Tell how far one of the calls is; raises `Canceled` when none of them is wanted any more."""
        self._shares[call] = max(fraction, self._shares.get(call, 0.0))
        self.context.progress(0.02 + 0.9 * sum(self._shares.values()) / calls)

    def log(self, lines: Sequence[str]) -> None:
        """Pass a provider's log on, up to a limit."""
        for line in lines[: max(0, _MOST_LINES - self._lines)]:
            self.context.log(line[:500])
        self._lines += len(lines)

    def source(self) -> UploadImage:
        """The picture that goes in."""
        if self.sent is None:
            raise EngineError("This needs a source picture.")
        return self.sent


Draw = Callable[[ModelCall, RunContextImages, Callable[[float], None]], Awaitable[CallResult]]


async def run(task: Task, context: Context, route: ModelRoute, draw: Draw, desk: RunContextImages) -> Result:
    """Have a provider draw what a task asks for; `draw` makes one call."""
    order = provider_requests.read(task)
    for word in route.unheard(order):
        context.log(f"{desk.title}'s {route.model} has no {word}: it is left out")
    if order.source is not None:
        desk.sent = await asyncio.to_thread(image_io.prepared, order.source)
    began = time.monotonic()
    try:
        async with asyncio.timeout(desk.limits.whole_seconds):
            calls = route.calls(order, _shape(order, desk.sent))
            drawn = await _all(calls, desk, draw)
            artifacts = await _artifacts(drawn, order, desk)
    except TimeoutError:
        whole = desk.limits.whole_seconds
        raise EngineError(f"{desk.title} did not finish within {whole:g} seconds.") from None
    context.progress(1.0)
    cost = _cost(route, drawn)
    context.log(_receipt(desk.title, route, cost, time.monotonic() - began))
    data: dict[str, Any] = {"provider": route.provider, "provider_model": route.model}
    seeds = [one.seed for one in drawn if one.seed is not None]
    if seeds:
        data["seeds"] = seeds
    return Result(artifacts, data, "full", cost)


def _shape(order: ProviderTask, sent: UploadImage | None) -> tuple[int, int] | None:
    return order.size or (sent.size if sent else None)


def _target(order: ProviderTask, sent: UploadImage | None) -> tuple[int, int] | None:
    """The exact size of what comes out; an enlarged picture is as large as it was made."""
    if order.scale is not None or sent is None:
        return order.size
    return order.size or sent.own_size


async def _all(calls: Sequence[ModelCall], desk: RunContextImages, draw: Draw) -> list[CallResult]:
    """Every call, a few at a time; one that fails ends the others, upstream too."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(index: int, call: ModelCall) -> CallResult:
        async with turns:
            return await draw(call, desk, lambda done: desk.progress(index, done, len(calls)))

    tasks = [asyncio.ensure_future(one(index, call)) for index, call in enumerate(calls)]
    try:
        return await asyncio.gather(*tasks)
    except asyncio.CancelledError:
        # Gathering has passed it on; to cancel them again would stop them from telling their provider.
        await asyncio.wait(tasks)
        raise
    except (EngineError, Canceled):
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)
        raise


async def _artifacts(
    drawn: Sequence[CallResult], order: ProviderTask, desk: RunContextImages
) -> tuple[Artifact, ...]:
    found = [picture for one in drawn for picture in one.pictures][: order.count]
    if len(found) < order.count:
        raise EngineError(f"{desk.title} gave {len(found)} of {order.count} pictures; try again.")
    target = _target(order, desk.sent)

    async def one(index: int, picture: bytes | str) -> Artifact:
        made = picture if isinstance(picture, bytes) else await _fetched(picture, index, desk)
        return await asyncio.to_thread(
            image_io.finished, made, target, order.format, order.quality, desk.title
        )

    return tuple(await asyncio.gather(*(one(index, picture) for index, picture in enumerate(found))))


async def _fetched(address: str, index: int, desk: RunContextImages) -> bytes | Path:
    """What lies at an address that a provider named: through the guard, or out of the URI itself."""
    most = desk.limits.file_bytes
    if data_uris.is_data_uri(address):
        try:
            return (await asyncio.to_thread(data_uris.parse_data_uri, address, most)).body
        except (errors.FetchFailed, errors.TooLarge) as error:
            raise EngineError(f"{desk.title} gave a picture that cannot be read; try again.") from error
    target = desk.context.scratch / f"upstream-{index}"
    for left in reversed(range(_TRIES)):
        try:
            await desk.outside.download(address, target, max_bytes=most)
            break
        except EngineError as error:
            # The picture is paid for: a server that fails once is asked again, one that is refused is not.
            if not left or not isinstance(error.__cause__, errors.FetchFailed):
                raise
            await asyncio.sleep(desk.limits.pause_seconds)
    return target


def _cost(route: ModelRoute, drawn: Sequence[CallResult]) -> int | None:
    costs = [route.price.micros(one.used) for one in drawn]
    return sum(cost for cost in costs if cost is not None) if None not in costs else None


def _receipt(title: str, route: ModelRoute, cost: int | None, seconds: float) -> str:
    paid = f"about {cost / 1_000_000:.6f}".rstrip("0") + " USD" if cost is not None else "an unknown amount"
    return f"{title} made this with {route.model} in {seconds:.1f} s, for {paid} to the operator"
