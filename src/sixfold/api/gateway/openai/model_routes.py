"""Errors for requests that name a model of the catalog on a route of model servers, such as a chat."""

from __future__ import annotations

from collections.abc import Mapping

from sixfold.api.gateway.openai import media_jobs
from sixfold.api.gateway.openai.images import sizes as image_sizes
from sixfold.api.gateway.openai.videos import models as video_models
from sixfold.core.catalog.models import Catalog

# The purpose of a model, by the kind of its output.
_PURPOSES: Mapping[str, str] = {
    "image": "makes images",
    "video": "makes videos",
    "audio": "makes audio",
    "model3d": "makes 3D models",
    "file": "makes files",
}
# The routes of the models with names of OpenAI.
_ROUTES: Mapping[str, str] = {
    "ra2": "/v1/images/generations",
    "tts": "/v1/audio/speech",
    "stt": "/v1/audio/transcriptions",
    "embeddings": "/v1/embeddings",
}


def describe(catalog: Catalog, name: str) -> str:
    """Return the purpose of a model of the catalog and the route that runs it, or an empty string.

    `name` may be one of OpenAI's names for the model.
    """
    own_name = next(
        (model for model, aliases in media_jobs.MODEL_ALIASES.items() if name.startswith(aliases[1:])), name
    )
    if own_name not in catalog or catalog[own_name].internal:
        return ""
    model = catalog[own_name]
    purpose = _PURPOSES.get(model.output_kind, "is not available on this route")
    return f"{name[:100]} {purpose}: use POST {_route(catalog, own_name)}"


def _route(catalog: Catalog, name: str) -> str:
    if name in _ROUTES:
        return _ROUTES[name]
    if image_sizes.is_name(catalog, name):
        return _ROUTES["ra2"]
    if name in video_models.names(catalog):
        return "/v1/videos"
    if catalog[name].service:
        return f'/api/service with "service": "{name}"'
    return f'/api/containers/run with "model": "{name}"'
