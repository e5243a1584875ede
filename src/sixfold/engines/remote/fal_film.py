"""fal's film models as engines: a picture and words go in, a film comes back as a file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sixfold.core.work.engines import Artifact, Context, EngineError, Result, Task
from sixfold.engines.remote import frames
from sixfold.engines.remote.fal import FalEngine
from sixfold.engines.remote.images import Desk
from sixfold.engines.remote.routes import Used
from sixfold.engines.video import container
from sixfold.upstreams import calls
from sixfold.upstreams.calls import Calls, Refusal
from sixfold.upstreams.fal import FAL, Fal, Made

_PICTURES = ("image_url", "image")
_BILLED_RATE = 16  # fal counts seconds at this many frames, whatever rate is asked for
_BILLED_SHARE = {"480p": 0.5, "580p": 0.75, "720p": 1.0}  # of what a second of 720p costs


class FalFilmEngine(FalEngine):
    """One film capability through fal's queue."""

    async def run(self, task: Task, context: Context) -> Result:
        """Have fal make the film; what was queued there is canceled when the run ends early."""
        began = time.monotonic()
        desk = Desk(FAL.title, self._outside, context, self._limits)
        to = self._calls()
        try:
            async with asyncio.timeout(self._limits.whole_seconds):
                asked = await self._asked(task)
                made = await self._made(Fal(to), asked, desk, lambda done: desk.progress(0, done, 1))
                artifact = await self._fetched(to, made, desk)
        except TimeoutError:
            whole = self._limits.whole_seconds
            raise EngineError(f"{FAL.title} did not finish within {whole:g} seconds.") from None
        context.progress(1.0)
        cost = self._route.price.micros(Used(seconds=_billed_seconds(task.inputs)))
        context.log(f"fal made this with {self._route.model} in {time.monotonic() - began:.1f} s")
        data: dict[str, Any] = {"provider": "fal", "provider_model": self._route.model}
        if isinstance(made.document.get("seed"), int):
            data["seed"] = made.document["seed"]
        return Result((artifact,), data, "full", cost)

    async def _asked(self, task: Task) -> dict[str, Any]:
        """The provider's inputs."""
        said = {
            theirs: task.inputs[ours] for ours, theirs in self._route.fields.items() if ours in task.inputs
        }
        source = next((task.files[name] for name in _PICTURES if name in task.files), None)
        if source is None:
            raise EngineError("This needs a source picture.")
        sent = await asyncio.to_thread(frames.prepared, source)
        return {**self._route.fixed, **said, self._route.fields["source"]: sent.data_uri()}

    async def _fetched(self, to: Calls, made: Made, desk: Desk) -> Artifact:
        address = calls.mapping(made.document.get("video")).get("url")
        if not isinstance(address, str):
            raise to.failed(Refusal("broken", said="gave an answer without a film"))
        target: Path = desk.context.scratch / "film"
        await self._outside.download(address, target, max_bytes=self._limits.file_bytes)
        try:
            found = await asyncio.to_thread(container.look, target)
        except container.NoFilm as error:
            raise EngineError(f"{FAL.title} gave a film that cannot be read; try again.") from error
        return Artifact(found.content_type, b"", found.info(), target)


def _billed_seconds(inputs: Mapping[str, Any]) -> float:
    share = _BILLED_SHARE.get(str(inputs.get("resolution")), 1.0)
    return int(inputs.get("num_frames") or 81) / _BILLED_RATE * share
