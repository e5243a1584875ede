"""Fake of Replicate's API on loopback, after https://replicate.com/docs/reference/http."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from PIL import Image
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sixfold.net import data_uris
from tests.fakes import fault_server
from tests.fakes.fault_server import Faults

KEY = "r8_" + "Zq7" * 12 + "x"
ESRGAN = "42fed1c4974146d4d2414e2be2c5277c7fcf05fcc3a73abf41610695738c1d7b"
WHISPER = "8099696689d249cf8b122d833c36ac3f75505c666a395ca40ef26f68e7d3d16e"
HEARD: dict[str, Any] = {
    "segments": [
        {"id": 0, "start": 0.0, "end": 0.4, "text": " good morning", "avg_logprob": -0.1},
        {"id": 1, "start": 0.5, "end": 1.0, "text": " dear friends", "avg_logprob": -0.4},
    ],
    "transcription": " good morning dear friends",
    "detected_language": "english",
}
_RATIOS = frozenset(["1:1", "16:9", "21:9", "3:2", "2:3", "4:5", "5:4", "3:4", "4:3", "9:16", "9:21"])
_FLUX = {
    "prompt": str,
    "seed": int,
    "num_outputs": int,
    "aspect_ratio": str,
    "output_format": str,
    "output_quality": int,
    "go_fast": bool,
    "megapixels": str,
    "num_inference_steps": int,
    "image": str,
    "prompt_strength": (int, float),
}
MODELS: dict[str, tuple[dict[str, Any], frozenset[str]]] = {
    "black-forest-labs/flux-dev": (_FLUX, frozenset({"prompt"})),
    "black-forest-labs/flux-schnell": (_FLUX, frozenset({"prompt"})),
    "black-forest-labs/flux-fill-dev": (
        {
            **dict.fromkeys(("prompt", "image", "mask", "megapixels", "output_format"), str),
            **dict.fromkeys(("seed", "num_outputs", "num_inference_steps"), int),
        },
        frozenset({"prompt", "image"}),
    ),
    "black-forest-labs/flux-kontext-pro": (
        {"prompt": str, "input_image": str, "aspect_ratio": str, "output_format": str, "seed": int},
        frozenset({"prompt"}),
    ),
    "wan-video/wan-2.2-i2v-fast": (
        {
            "prompt": str,
            "image": str,
            "seed": int,
            "num_frames": int,
            "resolution": str,
            "go_fast": bool,
            "interpolate_output": bool,
        },
        frozenset({"prompt", "image"}),
    ),
    "lightricks/ltx-2.3-fast": (
        {
            "prompt": str,
            "image": str,
            "duration": int,
            "resolution": str,
            "fps": int,
            "aspect_ratio": str,
            "generate_audio": bool,
        },
        frozenset({"prompt"}),
    ),
    "minimax/speech-2.6-turbo": (
        {
            "text": str,
            "speed": (int, float),
            **dict.fromkeys(("voice_id", "audio_format", "language_boost"), str),
        },
        frozenset({"text"}),
    ),
    WHISPER: ({"audio": str, "transcription": str, "translate": bool, "language": str}, frozenset({"audio"})),
    ESRGAN: ({"image": str, "scale": (int, float), "face_enhance": bool}, frozenset({"image"})),
}


@dataclass
class Job:
    id: str
    model: str
    inputs: dict[str, Any]
    looks: int = 0
    status: str = "starting"
    output: Any = None


@dataclass
class Replicate:
    """Fake Replicate: the requests it received, and its configured behavior."""

    port: int = 0
    faults: Faults = field(default_factory=Faults)
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    files: dict[str, tuple[bytes, str]] = field(default_factory=dict[str, tuple[bytes, str]])
    stored: dict[str, bytes] = field(default_factory=dict[str, bytes])
    # Whether predictions end within the time of `Prefer: wait`.
    quick: bool = False
    polls_until_done: int = 2
    ends: bool = True
    error: str = ""
    address: str = ""
    # Returned instead of a generated video.
    video: bytes = b""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models/{owner}/{name}/predictions", self.create, methods=["POST"]),
            Route("/v1/predictions", self.create, methods=["POST"]),
            Route("/v1/predictions/{id}", self.look),
            Route("/v1/predictions/{id}/cancel", self.cancel, methods=["POST"]),
            Route("/v1/files", self.store, methods=["POST"]),
            Route("/v1/files/{id}", self.remove, methods=["DELETE"]),
            Route("/delivery/{name}", self.content),
        ]

    def _refusal(self, request: Request) -> Response | None:
        if request.headers.get("authorization") == f"Bearer {KEY}":
            return None
        detail = "You did not pass a valid authentication token"
        return JSONResponse({"title": "Unauthenticated", "detail": detail, "status": 401}, 401)

    async def create(self, request: Request) -> Response:
        document = json.loads(await request.body())
        if fault := await self.faults.take("create", request, document):
            return fault
        if response := self._refusal(request):
            return response
        named = request.path_params
        model = f"{named['owner']}/{named['name']}" if named else document.get("version", "")
        if model not in MODELS:
            return JSONResponse({"detail": "The requested resource could not be found.", "status": 404}, 404)
        cancel_after = request.headers.get("cancel-after", "10m")
        if not re.fullmatch(r"\d+[smh]?", cancel_after):
            return JSONResponse({"detail": "Cancel-After is invalid", "status": 400}, 400)
        problems = _problems(document.get("input", {}), *MODELS[model])
        if problems:
            text = "\n".join(f"- input.{each['field']}: {each['description']}\n" for each in problems)
            body = {
                "title": "Input validation failed",
                "detail": text,
                "status": 422,
                "invalid_fields": [
                    {"type": "", "field": f"input.{each['field']}", "description": each["description"]}
                    for each in problems
                ],
            }
            return JSONResponse(body, 422)
        job = Job(f"{len(self.jobs):04d}qz3m1nrm0cq257vdw2n4c", model, document["input"])
        self.jobs[job.id] = job
        if self.quick and request.headers.get("prefer", "").startswith("wait"):
            self._finish(job)
        return JSONResponse(self._job_document(job), 201)

    async def look(self, request: Request) -> Response:
        if fault := await self.faults.take("look", request):
            return fault
        if response := self._refusal(request):
            return response
        job = self.jobs[request.path_params["id"]]
        job.looks += 1
        if job.status in {"starting", "processing"}:
            job.status = "processing"
            if self.ends and job.looks >= self.polls_until_done:
                self._finish(job)
        return JSONResponse(self._job_document(job))

    async def cancel(self, request: Request) -> Response:
        if fault := await self.faults.take("cancel", request):
            return fault
        if response := self._refusal(request):
            return response
        job = self.jobs[request.path_params["id"]]
        job.status = "canceled"
        return JSONResponse(self._job_document(job))

    async def store(self, request: Request) -> Response:
        if fault := await self.faults.take("store", request):
            return fault
        if response := self._refusal(request):
            return response
        async with request.form() as form:
            upload: Any = form["content"]
            content = await upload.read()
        file_id = f"NWU0{len(self.stored):04d}"
        self.stored[file_id] = content
        document = {
            "id": file_id,
            "name": upload.filename,
            "content_type": upload.content_type,
            "size": len(content),
            "etag": hashlib.md5(content, usedforsecurity=False).hexdigest(),
            "checksums": {"sha256": hashlib.sha256(content).hexdigest()},
            "metadata": {},
            "created_at": "2026-11-20T20:00:00.000Z",
            "expires_at": "2026-11-21T20:00:00.000Z",
            "urls": {"get": f"{self.url}/files/{file_id}"},
        }
        return JSONResponse(document, 201)

    async def remove(self, request: Request) -> Response:
        await self.faults.take("remove", request)
        if response := self._refusal(request):
            return response
        del self.stored[request.path_params["id"]]
        return Response(status_code=204)

    async def content(self, request: Request) -> Response:
        if fault := await self.faults.take("file", request):
            return fault
        data, content_type = self.files[request.path_params["name"]]
        return Response(data, media_type=content_type)

    def _finish(self, job: Job) -> None:
        if self.error:
            job.status = "failed"
            return
        job.status = "succeeded"
        if job.model.startswith(("wan-video/", "lightricks/")):
            name = f"{job.id}.mp4"
            self.files[name] = (self.video or _video(job.inputs), "video/mp4")
            job.output = f"http://127.0.0.1:{self.port}/delivery/{name}"
            return
        if job.model == WHISPER:
            job.output = HEARD
            return
        if job.model.startswith("minimax/"):
            tone = fault_server.tone(0.02 * len(job.inputs["text"]) / job.inputs.get("speed", 1))
            self.files[f"{job.id}.wav"] = (tone, "audio/wav")
            job.output = f"http://127.0.0.1:{self.port}/delivery/{job.id}.wav"
            return
        width, height = self._size(job)
        urls: list[str] = []
        for index in range(job.inputs.get("num_outputs", 1)):
            name = f"{job.id}-{index}.png"
            drawn = fault_server.image(width, height, seed=job.inputs.get("seed", 0) + index)
            self.files[name] = (drawn, "image/png")
            urls.append(self.address or f"http://127.0.0.1:{self.port}/delivery/{name}")
        single = "kontext" in job.model or job.model == ESRGAN
        job.output = urls[0] if single else urls

    def _size(self, job: Job) -> tuple[int, int]:
        inputs = job.inputs.get("image") or job.inputs.get("input_image")
        if inputs:
            width, height = self._requested_size(inputs)
            scale = job.inputs.get("scale", 1)
            return round(width * scale), round(height * scale)
        across, down = (int(part) for part in job.inputs.get("aspect_ratio", "1:1").split(":"))
        side = (1024 * 1024 / (across * down)) ** 0.5
        return round(across * side / 16) * 16, round(down * side / 16) * 16

    def _requested_size(self, inputs: str) -> tuple[int, int]:
        if inputs.startswith("data:"):
            content = data_uris.parse_data_uri(inputs, 32 << 20).body
        else:
            content = self.stored[inputs.rpartition("/")[2]]
        with Image.open(io.BytesIO(content)) as image:
            return image.size

    def _job_document(self, job: Job) -> dict[str, Any]:
        is_final = job.status in {"succeeded", "failed", "canceled"}
        address = f"{self.url}/predictions/{job.id}"
        return {
            "id": job.id,
            "model": "nightmareai/real-esrgan" if job.model == ESRGAN else job.model,
            "version": job.model if job.model == ESRGAN else "hidden",
            "input": job.inputs,
            "logs": "50%|█████     | 2/4\n" if job.status != "starting" else "",
            "output": job.output,
            "data_removed": False,
            "error": self.error or None if job.status == "failed" else None,
            "status": job.status,
            "created_at": "2026-11-20T20:00:00.000Z",
            "metrics": {"predict_time": 1.25} if is_final else {},
            "urls": {"get": address, "cancel": f"{address}/cancel"},
        }


def _video(inputs: dict[str, Any]) -> bytes:
    """Return a very small video with the requested frames, or the requested seconds with a tone."""
    if "num_frames" in inputs:
        return fault_server.video(16, inputs["num_frames"], (96, 54))
    size = (90, 160) if inputs.get("aspect_ratio") == "9:16" else (160, 90)
    rate = inputs.get("fps", 25)
    return fault_server.video(rate, rate * inputs["duration"], size, sound=inputs.get("generate_audio", True))


def _problems(inputs: dict[str, Any], takes: dict[str, Any], needs: frozenset[str]) -> list[dict[str, str]]:
    results = [{"field": name, "description": f"{name} is required"} for name in needs - set(inputs)]
    for name, value in inputs.items():
        kind = takes.get(name)
        if kind is None:
            results.append({"field": name, "description": "Additional property is not allowed"})
        elif not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            results.append({"field": name, "description": "Invalid type"})
    if not 0.5 <= inputs.get("speed", 1) <= 2:
        results.append({"field": "speed", "description": "Must be within 0.5 and 2"})
    ratio = inputs.get("aspect_ratio", "1:1")
    if ratio not in _RATIOS | {"match_input_image"}:
        results.append({"field": "aspect_ratio", "description": "Must be one of the following"})
    if inputs.get("resolution", "720p") not in {"480p", "720p", "1080p"}:
        results.append({"field": "resolution", "description": "Must be one of the following"})
    if not 1 <= inputs.get("num_outputs", 1) <= 4:
        results.append({"field": "num_outputs", "description": "Must be less than or equal to 4"})
    return results


@asynccontextmanager
async def running(fake: Replicate | None = None) -> AsyncGenerator[Replicate, None]:
    """Run the fake; a fake that ran before keeps its port."""
    fake = fake or Replicate()
    async with fault_server.serve(fake.routes(), fake.port) as fake.port:
        yield fake
