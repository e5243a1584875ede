"""Area A as a table: which path orders which model, and how its result is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sixfold.areas.media import schemas
from sixfold.areas.media.errors import GENERATION_FAILED, Ra1Failed
from sixfold.core.work.records import Prediction
from sixfold.errors import EngineFailed

Presenter = Callable[[Prediction, tuple[str, ...]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model's paths, its result (from the prediction and its files' URLs), and its failure."""

    paths: tuple[str, ...]
    model: str
    summary: str
    present: Presenter
    failure: type[EngineFailed]
    failure_text: str


ENDPOINTS = (
    Endpoint(
        ("/api/ra1-art-generator", "/api/ra1"),
        "ra1",
        "A painterly picture from a prompt",
        schemas.picture,
        Ra1Failed,
        GENERATION_FAILED,
    ),
    Endpoint(
        ("/api/anime-art-generator", "/api/anime"),
        "anime",
        "Anime pictures from a prompt",
        schemas.pictures,
        EngineFailed,
        GENERATION_FAILED,
    ),
)
BY_MODEL = {endpoint.model: endpoint for endpoint in ENDPOINTS}

# The contract's other paths: until they are built they are unknown, and say so in Area A's dialect.
RESERVED = (
    "/api/video-a",
    "/api/create-ai",
    "/api/create-post",
    "/api/photoreal",
    "/api/smart-resize",
    "/api/video-b",
    "/api/video-c",
    "/api/video-text",
    "/api/video-image",
    "/api/ra2v",
    "/api/remove-background",
    "/api/remove-background-video",
    "/api/video-editor/render",
    "/alt/api/remove-background",
    "/alt/api/remove-background-video",
)
