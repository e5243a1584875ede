"""Fake of fal's queue on loopback, after https://fal.ai/docs/documentation/model-apis/inference/queue."""

from __future__ import annotations

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

from sixfold.net import data_uris
from tests.fakes import fault_server
from tests.fakes.fault_server import Faults

KEY = "0b1f0c7e-53d4-4a3e-9f43-1c5b7a2e9d10:5f2a9c4e7b1d8036a5c9e2f4b7d10386"
_PRESETS = {"square_hd": (1024, 1024), "landscape_4_3": (1024, 768)}
_FLUX = {
    "prompt": str,
    "seed": int,
    "num_images": int,
    "image_size": (dict, str),
    "output_format": str,
    "enable_safety_checker": bool,
    "num_inference_steps": int,
    "guidance_scale": (int, float),
    "sync_mode": bool,
}
_LTX: dict[str, Any] = {
    **dict.fromkeys(("prompt", "resolution", "aspect_ratio"), str),
    **dict.fromkeys(("duration", "fps"), int),
    "generate_audio": bool,
}
# Inputs that each endpoint accepts, and those that it requires.
MODELS: dict[str, tuple[dict[str, Any], frozenset[str]]] = {
    "fal-ai/flux/dev": (_FLUX, frozenset({"prompt"})),
    "fal-ai/flux/schnell": (_FLUX, frozenset({"prompt"})),
    "fal-ai/flux/dev/image-to-image": (
        {**_FLUX, "image_url": str, "strength": (int, float)},
        frozenset({"prompt", "image_url"}),
    ),
    "fal-ai/flux-pro/kontext": ({**_FLUX, "image_url": str}, frozenset({"prompt", "image_url"})),
    "fal-ai/wan/v2.2-a14b/image-to-video": (
        {
            **dict.fromkeys(("image_url", "prompt", "negative_prompt"), str),
            **dict.fromkeys(("resolution", "aspect_ratio", "interpolator_model"), str),
            **dict.fromkeys(("num_frames", "frames_per_second", "seed"), int),
            **dict.fromkeys(("num_inference_steps", "num_interpolated_frames"), int),
            "guidance_scale": (int, float),
            "enable_safety_checker": bool,
        },
        frozenset({"prompt", "image_url"}),
    ),
    "fal-ai/ltx-2.3/text-to-video/fast": (_LTX, frozenset({"prompt"})),
    "fal-ai/ltx-2.3/image-to-video/fast": ({**_LTX, "image_url": str}, frozenset({"prompt", "image_url"})),
    "fal-ai/flux-pro/v1/fill": (
        {
            **dict.fromkeys(("prompt", "image_url", "mask_url", "output_format", "safety_tolerance"), str),
            **dict.fromkeys(("seed", "num_images"), int),
        },
        frozenset({"prompt", "image_url", "mask_url"}),
    ),
    "fal-ai/bria/background/remove": ({"image_url": str}, frozenset({"image_url"})),
    "fal-ai/minimax/speech-02-turbo": (
        {
            "text": str,
            **dict.fromkeys(("voice_setting", "audio_setting"), dict),
            **dict.fromkeys(("output_format", "language_boost"), str),
        },
        frozenset({"text"}),
    ),
    "fal-ai/whisper": (
        dict.fromkeys(("audio_url", "task", "chunk_level", "language"), str),
        frozenset({"audio_url"}),
    ),
}


HEARD: dict[str, Any] = {
    "text": " good morning dear friends",
    "chunks": [
        {"timestamp": [0.0, 0.2], "text": " good"},
        {"timestamp": [0.2, 0.4], "text": " morning"},
        {"timestamp": [1.2, 1.4], "text": " dear"},
        {"timestamp": [1.4, None], "text": " friends"},
    ],
    "inferred_languages": ["en"],
}


@dataclass
class Job:
    """Request in the queue."""

    id: str
    model: str
    inputs: dict[str, Any]
    looks: int = 0
    canceled: bool = False


@dataclass
class Fal:
    """Fake fal: the requests it received, and its configured behavior."""

    port: int = 0
    faults: Faults = field(default_factory=Faults)
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    files: dict[str, tuple[bytes, str]] = field(default_factory=dict[str, tuple[bytes, str]])
    polls_until_done: int = 2
    ends: bool = True
    nsfw: bool = False
    failure: tuple[int, Any] | None = None
    billable_units: str = ""
    # Returned instead of a valid image.
    file: tuple[bytes, str] | None = None
    # URL of the result, instead of that of this server.
    address: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def routes(self) -> list[Route]:
        job = "/{owner}/{alias}/requests/{id}"
        return [
            Route(f"{job}/status", self.status),
            Route(f"{job}/cancel", self.cancel, methods=["PUT"]),
            Route(job, self.result),
            Route("/files/{name}", self.content),
            Route("/{model:path}", self.submit, methods=["POST"]),
        ]

    def _refusal(self, request: Request) -> Response | None:
        if request.headers.get("authorization") == f"Key {KEY}":
            return None
        return JSONResponse({"detail": "Cannot access application. Authentication is required."}, 401)

    async def submit(self, request: Request) -> Response:
        document = json.loads(await request.body())
        if fault := await self.faults.take("submit", request, document):
            return fault
        if response := self._refusal(request):
            return response
        model = request.path_params["model"]
        if model not in MODELS:
            return JSONResponse({"detail": f"Application '{model}' not found"}, 404)
        problems = _problems(document, *MODELS[model])
        if problems:
            return JSONResponse({"detail": problems}, 422)
        job = Job(f"{len(self.jobs):08d}-52a4-4d0e-8a6a-0f3b6c1d2e3f", model, document)
        self.jobs[job.id] = job
        base = f"{self.url}/{'/'.join(model.split('/')[:2])}/requests/{job.id}"
        return JSONResponse(
            {
                "status": "IN_QUEUE",
                "request_id": job.id,
                "response_url": base,
                "status_url": f"{base}/status",
                "cancel_url": f"{base}/cancel",
                "logs": None,
                "metrics": {},
                "queue_position": 0,
            }
        )

    async def status(self, request: Request) -> Response:
        if fault := await self.faults.take("status", request):
            return fault
        if response := self._refusal(request):
            return response
        job = self.jobs[request.path_params["id"]]
        job.looks += 1
        logs = [
            {"message": "drawing", "level": "INFO", "source": "USER", "timestamp": "2026-11-20T00:00:00Z"}
        ]
        document: dict[str, Any] = {"request_id": job.id, "response_url": self._at(job)}
        if job.looks == 1 and self.polls_until_done > 1:
            return JSONResponse({"status": "IN_QUEUE", "queue_position": 1, **document}, 202)
        if not self.ends or job.looks < self.polls_until_done:
            return JSONResponse({"status": "IN_PROGRESS", "logs": logs, **document}, 202)
        completed_body = {"status": "COMPLETED", "logs": logs, "metrics": {"inference_time": 0.7}, **document}
        if self.failure:
            completed_body["error"], completed_body["error_type"] = "Request failed", "internal_error"
        return JSONResponse(completed_body)

    def _at(self, job: Job) -> str:
        return f"{self.url}/{'/'.join(job.model.split('/')[:2])}/requests/{job.id}"

    async def result(self, request: Request) -> Response:
        if fault := await self.faults.take("result", request):
            return fault
        if response := self._refusal(request):
            return response
        if self.failure:
            return JSONResponse(self.failure[1], self.failure[0])
        job = self.jobs[request.path_params["id"]]
        if "video" in job.model:
            return self._video(job)
        if "speech" in job.model:
            return self._speech(job)
        if "whisper" in job.model:
            return JSONResponse(HEARD)
        count = job.inputs.get("num_images", 1)
        seed = job.inputs.get("seed", 4242)
        width, height = _size(job.inputs)
        images: list[dict[str, Any]] = []
        for index in range(count):
            alpha = "background" in job.model
            name = f"{job.id}-{index}.png"
            self.files[name] = self.file or (
                fault_server.image(width, height, seed=seed + index, alpha=alpha),
                "image/png",
            )
            url = self.address or f"{self.url}/files/{name}"
            images.append({"url": url, "width": width, "height": height, "content_type": "image/png"})
        headers = {"x-fal-billable-units": self.billable_units} if self.billable_units else {}
        if "background" in job.model:
            return JSONResponse({"image": images[0]}, headers=headers)
        document = {
            "images": images,
            "timings": {"inference": 0.7},
            "seed": seed,
            "has_nsfw_concepts": [self.nsfw] * count,
            "prompt": job.inputs.get("prompt", ""),
        }
        return JSONResponse(document, headers=headers)

    def _video(self, job: Job) -> Response:
        """Return a small video with the requested frames and rate."""
        name = f"{job.id}.mp4"
        between = job.inputs.get("num_interpolated_frames", 1) + 1
        rate = job.inputs.get("frames_per_second", 16) * between
        video = fault_server.video(rate) if "ltx" not in job.model else _ltx(job.inputs)
        self.files[name] = self.file or (video, "video/mp4")
        url = self.address or f"{self.url}/files/{name}"
        document = {"video": {"url": url, "content_type": "video/mp4"}, "prompt": job.inputs["prompt"]}
        return JSONResponse({**document, "seed": job.inputs.get("seed", 4242)})

    def _speech(self, job: Job) -> Response:
        """Return a tone as long as the text, as hexadecimal digits unless a URL was requested."""
        tone = fault_server.tone(0.02 * len(job.inputs["text"]) / job.inputs["voice_setting"].get("speed", 1))
        if job.inputs.get("output_format") != "url":
            return JSONResponse({"audio": {"content": tone.hex()}})
        self.files[f"{job.id}.wav"] = (tone, "audio/wav")
        return JSONResponse({"audio": {"url": f"{self.url}/files/{job.id}.wav"}, "duration_ms": 1})

    async def cancel(self, request: Request) -> Response:
        if fault := await self.faults.take("cancel", request):
            return fault
        if response := self._refusal(request):
            return response
        job = self.jobs[request.path_params["id"]]
        job.canceled = True
        return JSONResponse({"status": "CANCELLATION_REQUESTED"}, 202)

    async def content(self, request: Request) -> Response:
        if fault := await self.faults.take("file", request):
            return fault
        data, content_type = self.files[request.path_params["name"]]
        return Response(data, media_type=content_type)


def _problems(inputs: dict[str, Any], takes: dict[str, Any], needs: frozenset[str]) -> list[dict[str, Any]]:
    results = [
        {"loc": ["body", name], "msg": "Field required", "type": "missing"} for name in needs - set(inputs)
    ]
    for name, value in inputs.items():
        kind = takes.get(name)
        if kind is None:
            results.append({"loc": ["body", name], "msg": "Extra inputs", "type": "extra_forbidden"})
        elif not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            results.append({"loc": ["body", name], "msg": "Wrong type", "type": "type_error"})
    if not 1 <= inputs.get("num_images", 1) <= 4:
        results.append({"loc": ["body", "num_images"], "msg": "1 to 4", "type": "less_than_equal"})
    if inputs.get("output_format", "jpeg") not in ({"url", "hex"} if "text" in takes else {"jpeg", "png"}):
        results.append({"loc": ["body", "output_format"], "msg": "not one of these", "type": "literal_error"})
    if not 0.5 <= inputs.get("voice_setting", {}).get("speed", 1) <= 2:
        results.append(
            {"loc": ["body", "voice_setting", "speed"], "msg": "0.5 to 2", "type": "less_than_equal"}
        )
    return results


def _ltx(inputs: dict[str, Any]) -> bytes:
    """Return a 16:9 video of the requested length, with audio unless it was disabled."""
    rate = inputs.get("fps", 25)
    frames = inputs.get("duration", 6) * rate
    return fault_server.video(rate, frames, (160, 90), sound=inputs.get("generate_audio", True))


def _size(inputs: dict[str, Any]) -> tuple[int, int]:
    if "image_url" in inputs:
        inline = data_uris.parse_data_uri(inputs["image_url"], 32 << 20)
        with Image.open(io.BytesIO(inline.body)) as image:
            return image.size
    size = inputs.get("image_size", "landscape_4_3")
    return _PRESETS[size] if isinstance(size, str) else (size["width"], size["height"])


@asynccontextmanager
async def running(fake: Fal | None = None) -> AsyncGenerator[Fal, None]:
    """Run the fake; a fake that ran before keeps its port."""
    fake = fake or Fal()
    async with fault_server.serve(fake.routes(), fake.port) as fake.port:
        yield fake
