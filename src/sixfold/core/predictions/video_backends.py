"""Selection of the smart video model's backend by prompt, image and load."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from sixfold.core.catalog.models import Catalog, Model
from sixfold.core.database import Database
from sixfold.core.predictions import queries
from sixfold.core.predictions.requests import PredictionRequest, PriceQuote

# From this number of queued predictions on, cheaper backends are used.
BUSY = 8
_SOUND_WORDS = re.compile(
    r"\b(?:sound\w*|audio|music\w*|song|sing\w*|voice\w*|noise\w*|nois[yi]\w*|loud\w*|hear\w*|listen\w*|speak\w*"
    r"|talk\w*|roar\w*|crackl\w*|chirp\w*|thunder\w*|whisper\w*|melod\w*|applau\w*|cheer\w*|bells?|drums?"
    r"|piano|guitar|howl\w*|rustl\w*|ambien\w*)\b"
)


async def assign(
    request: PredictionRequest, model: Model, quote: PriceQuote, catalog: Catalog, database: Database
) -> PredictionRequest:
    """Return the request with the selected backend and its inputs as extras, if the model has backends."""
    if not model.backends:
        return request
    name, overrides = choose(quote.values, await database.read(queries.count_waiting()))
    backend = catalog[name]
    inputs = {key: value for key, value in quote.values.items() if backend.takes(key)}
    extras = backend.for_engine(backend.check({**inputs, **overrides}))
    return msgspec.structs.replace(request, extras={**extras, "backend": name, **request.extras})


def choose(values: Mapping[str, Any], waiting: int) -> tuple[str, Mapping[str, Any]]:
    """Return the name of the backend, and the inputs that differ from its defaults.

    `values` are the validated inputs; `waiting` is the number of queued predictions.
    """
    has_sound = bool(_SOUND_WORDS.search(str(values.get("prompt", "")).casefold()))
    has_image, busy = "image_url" in values, waiting >= BUSY
    lighter = {"resolution": "720p"} if busy else {}
    if has_sound:
        return ("video-image" if has_image else "video-text"), lighter
    if not has_image:
        return "video-c", lighter
    return ("video-b" if busy else "video-a"), {}
