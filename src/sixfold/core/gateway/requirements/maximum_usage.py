"""The maximum usage of a chat, for its hold, including media and tools.

A call is never charged more than its hold. Therefore this module estimates all usage that a provider charges
beyond the text of a request, with a tendency to overestimate; the unused amount is released with the charge.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from sixfold.core.gateway.pricing.usage import TokenUsage
from sixfold.core.gateway.requirements.provider_tools import RequestTools
from sixfold.core.input_limits import byte_search

# Tokens held for input without a limit, or the model's context if that is smaller.
MAX_TOKENS = 200_000
# Tokens of the largest image, by model name: OpenAI's small models count each image several times.
_MAX_IMAGE_TOKENS = 5000
_LARGE_IMAGES = ((re.compile(r"gpt-4o-mini"), 50_000), (re.compile(r"gpt-5\.[4-9]"), 10_000))
# A token of audio is a tenth of a second, which has this many base64 characters at the lowest bit rate.
_AUDIO_CHARS = 130
_PART = rb'"type"\s*:\s*"(?:%s)"'
_IMAGE = re.compile(_PART % rb"image_url|image|input_image")
# The prefixes of images in base64, which Ollama's messages contain without a type.
_IMAGE_DATA = re.compile(rb'"(?:iVBORw0KGgo|/9j/|R0lGOD|UklGR)')
_DOCUMENT = re.compile(_PART % rb"document|file|input_file|container_upload")
_AUDIO_IN = re.compile(rb'"input_audio"')
_AUDIO_OUT = re.compile(rb'"modalities"|"audio"')
_CACHE = re.compile(rb'"cache_control"')
_LONG_CACHE = re.compile(rb'"1h"')
# Text that the answer is expected to repeat. OpenAI charges for its tokens as output, whether used or not.
_PREDICTION = re.compile(rb'"prediction"')
# One of these words occurs in each of the contents.
_ANY = re.compile(
    rb'"(?:image_url|image|images|input_image|document|file|input_file|container_upload|input_audio|modalities'
    rb'|audio|cache_control|prediction)"'
)


class Contents:
    """The media and documents of a body."""

    is_plain = True
    images = audio_tokens = 0
    documents = speech = caches = caches_long = predicts = False

    def __init__(self, body: bytes) -> None:
        is_escaped = byte_search.has_escaped_name(body)
        if not is_escaped and not byte_search.has_match(_ANY, body):
            return
        self.is_plain = False

        def has(pattern: re.Pattern[bytes]) -> bool:
            return is_escaped or pattern.search(body) is not None

        self.images = max(sum(1 for _ in each.finditer(body)) for each in (_IMAGE, _IMAGE_DATA))
        self.audio_tokens = len(body) // _AUDIO_CHARS if has(_AUDIO_IN) else 0
        self.documents = has(_DOCUMENT)
        self.speech = is_escaped or byte_search.has_match(_AUDIO_OUT, body)
        self.predicts = has(_PREDICTION)
        self.caches = has(_CACHE)
        self.caches_long = self.caches and has(_LONG_CACHE)

    def image_tokens(self, model: str) -> int:
        """Return the maximum number of tokens of the images."""
        large = (tokens for pattern, tokens in _LARGE_IMAGES if pattern.search(model))
        return self.images * next(large, _MAX_IMAGE_TOKENS)


def add_media_and_tools(
    contents: Contents, text: TokenUsage, tools: RequestTools, model: str, context: int
) -> TokenUsage:
    """Return the maximum usage of a request: of its text and output (`text`), its media and its tools.

    `context` is the context length of the model in tokens, or 0 if unknown.
    """
    units = tools.max_uses(model)
    if contents.is_plain and tools.is_empty and units is None:
        return text
    max_tokens = min(context or MAX_TOKENS, MAX_TOKENS)
    added = tools.max_tokens(model, max_tokens) + max_tokens * contents.documents
    input_tokens = text.input + contents.image_tokens(model) + added
    output = text.output + text.input * contents.predicts
    return replace(
        text,
        output=output,
        input=input_tokens + contents.audio_tokens,
        audio_in=contents.audio_tokens,
        audio_out=output if contents.speech else 0,
        cache_write=input_tokens if contents.caches and not contents.caches_long else 0,
        cache_write_long=input_tokens if contents.caches_long else 0,
        units=units,
    )
