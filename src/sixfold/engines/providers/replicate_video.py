"""Replicate's film models as engines: words, and a picture or none, go in; a film comes back as a file."""

from __future__ import annotations

from sixfold.clients.provider_client import ProviderRefusal
from sixfold.clients.replicate import REPLICATE, ReplicateClient
from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.providers import video_runs
from sixfold.engines.providers.image_runs import RunContextImages
from sixfold.engines.providers.replicate import ReplicateEngine
from sixfold.engines.providers.video_runs import VideoRequest, VideoResult


class ReplicateVideoEngine(ReplicateEngine):
    """One film capability through Replicate's predictions."""

    async def run(self, task: Task, context: Context) -> Result:
        """Have Replicate make the film; what runs there is canceled when the run ends early."""
        to = self._calls()
        replicate = ReplicateClient(to)

        async def make(asked: VideoRequest, desk: RunContextImages) -> VideoResult:
            inputs = dict(asked.inputs)
            async with self._placed(replicate, asked.sent) as source:
                if source:
                    inputs[self._route.fields["source"]] = source
                ended = await self._made(
                    replicate, asked.model, inputs, desk, lambda done: desk.progress(0, done, 1)
                )
            output = ended.output[0] if isinstance(ended.output, list) and ended.output else ended.output
            if not isinstance(output, str):
                raise to.failed(ProviderRefusal("broken", said="gave an answer without a film"))
            return VideoResult(output, inputs.get(self._route.fields.get("seed", "")))

        desk = RunContextImages(REPLICATE.title, self._outside, context, self._limits)
        return await video_runs.run(task, self._route, make, desk)
