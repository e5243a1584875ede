"""fal's film models as engines: words, and a picture or none, go in; a film comes back as a file."""

from __future__ import annotations

from sixfold.clients import provider_client
from sixfold.clients.fal import FAL, FalClient
from sixfold.clients.provider_client import ProviderRefusal
from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.providers import video_runs
from sixfold.engines.providers.fal import FalEngine
from sixfold.engines.providers.image_runs import RunContextImages
from sixfold.engines.providers.video_runs import VideoRequest, VideoResult


class FalVideoEngine(FalEngine):
    """One film capability through fal's queue."""

    async def run(self, task: Task, context: Context) -> Result:
        """Have fal make the film; what was queued there is canceled when the run ends early."""
        to = self._calls()

        async def make(asked: VideoRequest, desk: RunContextImages) -> VideoResult:
            inputs = dict(asked.inputs)
            if asked.sent is not None:
                inputs[self._route.fields["source"]] = asked.sent.data_uri()
            made = await self._made(
                FalClient(to), inputs, desk, lambda done: desk.progress(0, done, 1), asked.model
            )
            address = provider_client.mapping(made.document.get("video")).get("url")
            if not isinstance(address, str):
                raise to.failed(ProviderRefusal("broken", said="gave an answer without a film"))
            seed = made.document.get("seed")
            return VideoResult(address, seed if isinstance(seed, int) else None)

        desk = RunContextImages(FAL.title, self._outside, context, self._limits)
        return await video_runs.run(task, self._route, make, desk)
