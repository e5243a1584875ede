"""fal's film models as engines: words, and a picture or none, go in; a film comes back as a file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sixfold.core.work.engines import Artifact, Context, EngineError, Result, Task
from sixfold.engines.remote import frames
from sixfold.engines.remote.fal import FalEngine
from sixfold.engines.remote.images import Desk
from sixfold.engines.remote.routes import Used
from sixfold.engines.video import container, fitting, orders
from sixfold.engines.video.fitting import Wanted
from sixfold.upstreams import calls
from sixfold.upstreams.calls import Calls, Refusal
from sixfold.upstreams.fal import FAL, Fal, Made

_PICTURES = ("image_url", "image")
_BILLED_RATE = 16  # fal counts seconds at this many frames, whatever rate is asked for
_BILLED_SHARE = {"480p": 0.5, "580p": 0.75, "720p": 1.0}  # of what a second of 720p costs
_SPOKEN = ("seed", "negative_prompt")  # what is said in the log where a model does not take it


@dataclass(frozen=True, slots=True)
class _Asked:
    """One call: which model, its inputs, the seconds that fal bills, and what the film must become."""

    model: str
    inputs: Mapping[str, Any]
    billed_seconds: float
    wanted: Wanted | None = None


class FalFilmEngine(FalEngine):
    """One film capability through fal's queue."""

    async def run(self, task: Task, context: Context) -> Result:
        """Have fal make the film; what was queued there is canceled when the run ends early."""
        began = time.monotonic()
        desk = Desk(FAL.title, self._outside, context, self._limits)
        to = self._calls()
        asked = await self._asked(task, context)
        try:
            async with asyncio.timeout(self._limits.whole_seconds):
                made = await self._made(
                    Fal(to), dict(asked.inputs), desk, lambda done: desk.progress(0, done, 1), asked.model
                )
                path = await self._fetched(to, made, desk)
        except TimeoutError:
            whole = self._limits.whole_seconds
            raise EngineError(f"{FAL.title} did not finish within {whole:g} seconds.") from None
        artifact = await _finished(path, asked.wanted, context)
        context.progress(1.0)
        cost = self._route.price.micros(Used(seconds=asked.billed_seconds))
        context.log(f"fal made this with {asked.model} in {time.monotonic() - began:.1f} s")
        data: dict[str, Any] = {"provider": "fal", "provider_model": asked.model}
        if isinstance(made.document.get("seed"), int):
            data["seed"] = made.document["seed"]
        return Result((artifact,), data, "full", cost)

    async def _asked(self, task: Task, context: Context) -> _Asked:
        """The provider's inputs."""
        route, given = self._route, dict(task.inputs)
        source = next((task.files[name] for name in _PICTURES if name in task.files), None)
        if source is None and not route.pictured:
            raise EngineError("This needs a source picture.")
        wanted, billed = None, _billed_seconds(given)
        if route.lengths:
            order = orders.read(given)
            billed = float(next((one for one in route.lengths if one >= order.seconds), route.lengths[-1]))
            wanted = Wanted(order.resolution, order.size, order.seconds, order.sound)
            given |= {"seconds": int(billed), "sound": order.sound}
        for word in _SPOKEN:
            if given.get(word) not in (None, "") and word not in route.fields:
                context.log(f"{FAL.title}'s {route.model} has no {word}: it is left out")
        said = {
            theirs: given[ours] for ours, theirs in route.fields.items() if given.get(ours) not in (None, "")
        }
        if source is None:
            return _Asked(route.model, {**route.fixed, **said}, billed, wanted)
        sent = await asyncio.to_thread(frames.prepared, source)
        inputs = {**route.fixed, **said, route.fields["source"]: sent.data_uri()}
        return _Asked(route.pictured or route.model, inputs, billed, wanted)

    async def _fetched(self, to: Calls, made: Made, desk: Desk) -> Path:
        address = calls.mapping(made.document.get("video")).get("url")
        if not isinstance(address, str):
            raise to.failed(Refusal("broken", said="gave an answer without a film"))
        target: Path = desk.context.scratch / "film"
        await self._outside.download(address, target, max_bytes=self._limits.file_bytes)
        return target


async def _finished(path: Path, wanted: Wanted | None, context: Context) -> Artifact:
    """The film as it was ordered, where it did not come so."""
    try:
        found = await asyncio.to_thread(container.look, path)
        if wanted is not None:
            path = await fitting.fitted(path, found, wanted, context)
            found = await asyncio.to_thread(container.look, path)
    except (container.NoFilm, fitting.Unfit) as error:
        raise EngineError(f"{FAL.title} gave a film that cannot be read; try again.") from error
    return Artifact(found.content_type, b"", found.info(), path)


def _billed_seconds(inputs: Mapping[str, Any]) -> float:
    share = _BILLED_SHARE.get(str(inputs.get("resolution")), 1.0)
    return int(inputs.get("num_frames") or 81) / _BILLED_RATE * share
