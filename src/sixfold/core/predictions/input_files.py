"""Media inputs of a request: files that it brings, and files that its inputs refer to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sixfold.core.catalog import timeline
from sixfold.core.catalog.models import Model
from sixfold.core.media.media import MediaService, MediaSource
from sixfold.core.predictions.requests import PredictionRequest


async def sources_of(
    order: PredictionRequest, model: Model, values: Mapping[str, Any], media: MediaService
) -> dict[str, MediaSource]:
    """Return the media source of each media input by name; raises what `MediaService.resolve` raises."""
    sources, tenant = dict(order.sources), order.principal.tenant
    for descriptor in model.media_inputs:
        text = values.get(descriptor.name)
        if text is not None and descriptor.name not in sources:
            sources[descriptor.name] = await media.resolve(tenant, descriptor, text)
    sources |= await media.resolve_all(tenant, model.listed_images(values))
    for name in model.projects & values.keys():
        clips, urls = timeline.media(values[name]), timeline.urls(values[name])
        wanted = {clip: (clips[clip], urls[clip]) for clip in clips if clip not in sources}
        sources |= await media.resolve_all(tenant, wanted)
    return sources
