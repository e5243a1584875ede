"""Fake of OpenAI's API on loopback: images, audio, image descriptions; the last also for Anthropic.

After https://developers.openai.com/api/reference/resources/images, …/audio and …/chat, and
https://platform.claude.com/docs/en/api/messages.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from PIL import Image
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.fakes import fault_server
from tests.fakes.fault_server import Faults

KEY = "sk-proj-" + "Ab3dE" * 9
_MODELS = frozenset({"gpt-image-2", "gpt-image-2.5-flare", "gpt-image-2.5-sunburst", "gpt-image-1-mini"})
_FIELDS = frozenset({"model", "prompt", "n", "size", "quality", "background", "user", "moderation"}) | {
    "output_format",
    "output_compression",
}
_VOICES = frozenset({"alloy", "ash", "coral", "echo", "fable", "onyx", "nova", "sage", "shimmer"})
_SAID = ("good", "morning", "dear", "friends")
_QUALITIES = frozenset({"low", "medium", "high", "xhigh", "max", "auto"})
_TOKENS = {"low": 196, "medium": 1_767, "high": 7_034, "auto": 1_767}


class Refused(Exception):
    """Request that the real service rejects, as its `error` object."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        kind = "authentication_error" if status == 401 else "invalid_request_error"
        self.document = {
            "error": {"message": message, "type": kind, "param": param or None, "code": code or None}
        }


@dataclass
class OpenAI:
    """Fake OpenAI: the requests it received, and its configured behavior."""

    port: int = 0
    faults: Faults = field(default_factory=Faults)
    uploads: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    usage: bool = True
    # Some compatible servers respond with a URL.
    by_address: bool = False
    file: bytes | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def routes(self) -> list[Route]:
        return [
            Route("/v1/images/generations", self.generate, methods=["POST"]),
            Route("/v1/images/edits", self.edit, methods=["POST"]),
            Route("/v1/audio/speech", self.speak, methods=["POST"]),
            Route("/v1/audio/transcriptions", self.listen, methods=["POST"]),
            Route("/v1/chat/completions", self.describe, methods=["POST"]),
            Route("/v1/messages", self.describe, methods=["POST"]),
            Route("/files/{name}", self.content),
        ]

    async def generate(self, request: Request) -> Response:
        document = json.loads(await request.body())
        if fault := await self.faults.take("generate", request, document):
            return fault
        try:
            _authorize(request)
            return self._drawn(document, None)
        except Refused as refused:
            return JSONResponse(refused.document, refused.status)

    async def edit(self, request: Request) -> Response:
        async with request.form() as form:
            names = list(form.keys())
            uploads = [each for name in ("image[]", "image") for each in form.getlist(name)]
            images = [await each.read() for each in uploads if not isinstance(each, str)]
            document = {name: form[name] for name in names if isinstance(form[name], str)}
        if fault := await self.faults.take("edit", request, document):
            return fault
        try:
            _authorize(request)
            self.uploads += [("image", each) for each in images]
            return self._drawn(document, images)
        except Refused as refused:
            return JSONResponse(refused.document, refused.status)

    async def speak(self, request: Request) -> Response:
        """Return a tone of 20 ms for each character, at the requested speed."""
        document = json.loads(await request.body())
        if fault := await self.faults.take("speak", request, document):
            return fault
        try:
            _authorize(request)
            _sayable(document)
        except Refused as refused:
            return JSONResponse(refused.document, refused.status)
        seconds = 0.02 * len(document["input"]) / document.get("speed", 1)
        return Response(fault_server.tone(seconds), media_type="audio/wav")

    async def listen(self, request: Request) -> Response:
        """Return two segments of words, regardless of the audio."""
        async with request.form() as form:
            document: dict[str, Any] = {name: form.getlist(name) for name in form if name != "file"}
            file = form["file"]
            assert not isinstance(file, str)
            self.uploads.append((file.filename or "", await file.read()))
        if fault := await self.faults.take("listen", request, document):
            return fault
        words = [{"word": word, "start": at / 4, "end": at / 4 + 0.2} for at, word in enumerate(_SAID)]
        segments = [
            {"id": 0, "start": 0.0, "end": 0.5, "text": " good morning", "avg_logprob": -0.1},
            {"id": 1, "start": 0.5, "end": 1.0, "text": " dear friends", "avg_logprob": -0.4},
        ]
        text = {"text": "good morning dear friends", "language": "english", "duration": 1.0}
        return JSONResponse(text | {"segments": segments, "words": words})

    async def describe(self, request: Request) -> Response:
        """Return a description of an image, in either protocol."""
        document = json.loads(await request.body())
        if fault := await self.faults.take("describe", request, document):
            return fault
        text = "A red square on white."
        if request.url.path.endswith("messages"):
            usage = {"input_tokens": 900, "output_tokens": 8}
            return JSONResponse(
                {"type": "message", "content": [{"type": "text", "text": text}], "usage": usage}
            )
        choices = [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
        return JSONResponse({"choices": choices, "usage": {"prompt_tokens": 900, "completion_tokens": 8}})

    async def content(self, request: Request) -> Response:
        await self.faults.take("file", request)
        return Response(fault_server.image(64, 64), media_type="image/png")

    def _drawn(self, inputs: dict[str, Any], pictures: list[bytes] | None) -> Response:
        if pictures is not None and not pictures:
            raise Refused(400, "Missing required parameter: 'image'.", param="image")
        width, height, count = _check(inputs)
        output_format = str(inputs.get("output_format", "png"))
        images = [
            self.file or fault_server.image(width, height, seed=index, format_=output_format.upper())
            for index in range(count)
        ]
        data = [{"b64_json": base64.b64encode(image).decode()} for image in images]
        if self.by_address:
            address = f"http://127.0.0.1:{self.port}/files"
            data = [{"url": f"{address}/{index}.png"} for index in range(count)]
        quality = str(inputs.get("quality", "auto"))
        text, image_in = len(str(inputs["prompt"])) // 4 + 1, 300 * len(pictures or ())
        out = _TOKENS.get(quality, 1_767) * count
        document: dict[str, Any] = {
            "created": 1_795_000_000,
            "background": "opaque",
            "output_format": output_format,
            "quality": "medium" if quality == "auto" else quality,
            "size": f"{width}x{height}",
            "data": data,
        }
        if self.usage:
            document["usage"] = {
                "input_tokens": text + image_in,
                "input_tokens_details": {"text_tokens": text, "image_tokens": image_in},
                "output_tokens": out,
                "total_tokens": text + image_in + out,
            }
        return JSONResponse(document)


def _authorize(request: Request) -> None:
    key = request.headers.get("authorization", "").removeprefix("Bearer ")
    if key != KEY:
        masked_key = f"{key[:8]}{'*' * 8}{key[-4:]}"
        message = f"Incorrect API key provided: {masked_key}. You can find your API key at https://platform.openai.com."
        raise Refused(401, message, code="invalid_api_key")


def _sayable(inputs: dict[str, Any]) -> None:
    if inputs.get("voice") not in _VOICES or len(inputs["input"]) > 4096:
        raise Refused(400, "Invalid value for 'voice'.", param="voice", code="invalid_value")


def _check(inputs: dict[str, Any]) -> tuple[int, int, int]:
    for name in inputs:
        if name not in _FIELDS:
            raise Refused(400, f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
    if not inputs.get("prompt"):
        raise Refused(400, "Missing required parameter: 'prompt'.", param="prompt")
    if inputs.get("model") not in _MODELS:
        raise Refused(
            400, f"The model '{inputs.get('model')}' does not exist.", param="model", code="model_not_found"
        )
    if inputs.get("quality", "auto") not in _QUALITIES:
        raise Refused(400, "Invalid value for 'quality'.", param="quality", code="invalid_value")
    count = int(inputs.get("n", 1))
    if not 1 <= count <= 10:
        raise Refused(400, "Invalid 'n': integer above maximum value.", param="n")
    size = str(inputs.get("size", "auto"))
    width, height = (1024, 1024) if size == "auto" else (int(part) for part in size.split("x"))
    fits = width % 16 == 0 and height % 16 == 0 and 1 / 3 <= width / height <= 3
    if not fits or max(width, height) > 3840 or not 655_360 <= width * height <= 8_294_400:
        raise Refused(400, f"Invalid size '{size}'.", param="size", code="invalid_value")
    return width, height, count


def pixels(image: bytes) -> tuple[int, int]:
    """Return the size of an uploaded image."""
    with Image.open(io.BytesIO(image)) as opened_image:
        return opened_image.size


@asynccontextmanager
async def running(fake: OpenAI | None = None) -> AsyncGenerator[OpenAI, None]:
    """Run the fake; a fake that ran before keeps its port."""
    fake = fake or OpenAI()
    async with fault_server.serve(fake.routes(), fake.port) as fake.port:
        yield fake
