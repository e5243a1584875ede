"""Video models of the Media API: routes, responses, prices, and failures without a charge."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import av
import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import AppFixture, running_app
from tests.api.media_samples import finished_job
from tests.harness import image_files

VIDEO_ROUTES = ("video-a", "video-b", "video-c", "video-text", "video-image", "ra2v")
BAD = {"error": "Invalid image URL or prompt", "status": 400}
FAILED = {"error": "Video generation service failed", "status": 500}


def short_videos() -> dict[str, Any]:
    """The bundled catalog, with videos short and small enough for tests."""
    document = app_catalog.models_document()
    models = {name: dict(row) for name, row in document["models"].items()}
    for name in VIDEO_ROUTES:
        fixed = {**models[name].get("fixed", {}), "num_frames": 5, "resolution": "480p"}
        models[name]["fixed"] = fixed
    return {**document, "models": models}


def image_uri(size: tuple[int, int] = (96, 64)) -> str:
    return image_files.data_uri(image_files.encode(Image.radial_gradient("L").resize(size).convert("RGB")))


@pytest.fixture
async def video_app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A server with the real video engine and short videos."""
    async with running_app(tmp_path, short_videos()) as result:
        yield result


def body_with(app: AppFixture, **more: Any) -> dict[str, Any]:
    """Return a valid body for all video models, with changes."""
    return {"api_key": app.key, "prompt": "slow pan left", "image_url": image_uri(), "seed": 7, **more}


async def video_properties(app: AppFixture, url: str) -> dict[str, Any]:
    """Return the properties of a result as a player reads them."""
    response = await app.client.get(url)
    assert response.headers["Content-Type"] == "video/mp4"
    with av.open(io.BytesIO(response.content), "r") as container:
        video = container.streams.video[0]
        return {
            "size": (video.width, video.height),
            "rate": float(video.average_rate or 0),
            "frames": sum(1 for _ in container.decode(video)),
            "pixels": video.pix_fmt,
            "sound": bool(container.streams.audio),
        }


async def test_video_a_returns_a_video_for_thirty_cents(video_app: AppFixture) -> None:
    response = await video_app.client.post("/api/video-a", json=body_with(video_app))
    assert response.status_code == 200
    body = response.json()
    video = body["result"].pop("video")
    url = video.pop("url")
    assert video == {"width": 720, "height": 480, "duration": 0.281, "fps": 32, "content_type": "video/mp4"}
    assert body == {"result": {"prompt": "slow pan left", "seed": 7}, "cost": "0.30", "credits_charged": 30}
    assert await video_properties(video_app, url) == {
        "size": (720, 480),
        "rate": 32.0,
        "frames": 9,
        "pixels": "yuv420p",
        "sound": False,
    }
    assert response.headers["X-Sixfold-Engine"] == "camera-preview"
    assert response.headers["X-Sixfold-Quality"] == "preview"
    assert await video_app.balance() == ("4.70", "0.00")
    assert await video_app.faults() == ()


async def test_video_a_job_ends_with_the_inner_object_of_a_waited_call(video_app: AppFixture) -> None:
    inline = (await video_app.client.post("/api/video-a", json=body_with(video_app))).json()["result"]
    queued = await video_app.client.post("/api/video-a", json=body_with(video_app, response_mode="polling"))
    assert queued.status_code == 202
    job = await finished_job(video_app, queued.json()["status_url"])
    assert job["status"] == "completed"
    result = job["result"]
    files = [(await video_app.client.get(each["video"].pop("url"))).content for each in (inline, result)]
    assert result == inline
    assert files[0] == files[1]


async def test_every_parameter_of_video_a_is_honoured(video_app: AppFixture) -> None:
    expected = {
        "frames_per_second": 10,
        "aspect_ratio": "9:16",
        "interpolator_model": "rife",
        "num_interpolated_frames": 2,
        "negative_prompt": "blur",
        "num_inference_steps": 30,
        "guidance_scale": 5.5,
        "enable_safety_checker": False,
        "seed": None,
    }
    response = await video_app.client.post("/api/video-a", json=body_with(video_app, **expected))
    result = response.json()["result"]
    assert 0 <= result["seed"] < 2**31
    properties = await video_properties(video_app, result["video"]["url"])
    assert (properties["size"], properties["rate"], properties["frames"]) == ((480, 854), 30.0, 13)


async def test_form_is_equivalent_to_json(video_app: AppFixture) -> None:
    form = {key: str(value) for key, value in body_with(video_app, guidance_scale=2.5).items()}
    response = await video_app.client.post("/api/video-a", data=form)
    assert (response.status_code, response.json()["result"]["seed"]) == (200, 7)


SEEDS = f"from 0 to {2**31 - 1}"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"image_url": None}, BAD["error"]),
    ({"image_url": ""}, BAD["error"]),
    ({"image_url": "nonsense"}, BAD["error"]),
    ({"image_url": "ftp://example.com/x.png"}, BAD["error"]),
    ({"image_url": "http://127.0.0.1/x.png"}, BAD["error"]),
    ({"image_url": "http://[::1]/x.png"}, BAD["error"]),
    ({"image_url": "http://169.254.169.254/latest/meta-data"}, BAD["error"]),
    ({"image_url": "file:///etc/passwd"}, BAD["error"]),
    ({"image_url": "data:image/png;base64,AAAA"}, BAD["error"]),
    ({"image_url": "data:text/html,<script>"}, BAD["error"]),
    ({"image_url": 5}, BAD["error"]),
    ({"prompt": None}, BAD["error"]),
    ({"prompt": " "}, BAD["error"]),
    ({"prompt": "x" * 4001}, BAD["error"]),
    ({"num_frames": 80}, "Invalid num_frames: it must be from 81 to 121 (got 80)"),
    ({"num_frames": 122}, "Invalid num_frames: it must be from 81 to 121 (got 122)"),
    ({"num_frames": 81.5}, "Invalid num_frames: it must be a whole number from 81 to 121"),
    ({"frames_per_second": 3}, "Invalid frames_per_second: it must be from 4 to 60 (got 3)"),
    ({"frames_per_second": 61}, "Invalid frames_per_second: it must be from 4 to 60 (got 61)"),
    ({"resolution": "1080p"}, "Invalid resolution: it must be one of 480p, 580p, 720p (got 1080p)"),
    ({"aspect_ratio": "4:3"}, "Invalid aspect_ratio: it must be one of auto, 16:9, 9:16, 1:1 (got 4:3)"),
    ({"seed": -1}, f"Invalid seed: it must be {SEEDS} (got -1)"),
    ({"seed": 2**31}, f"Invalid seed: it must be {SEEDS} (got {2**31})"),
    ({"num_inference_steps": 0}, "Invalid num_inference_steps: it must be from 1 to 200 (got 0)"),
    ({"guidance_scale": "high"}, "Invalid guidance_scale: it must be a number from 0 to 30"),
    ({"enable_safety_checker": 1}, "Invalid enable_safety_checker: it must be true or false"),
    (
        {"interpolator_model": "dis"},
        "Invalid interpolator_model: it must be one of none, film, rife (got dis)",
    ),
    ({"num_interpolated_frames": 5}, "Invalid num_interpolated_frames: it must be from 0 to 4 (got 5)"),
    ({"response_mode": "later"}, "Invalid response_mode: it must be polling or inline"),
]


@pytest.mark.parametrize(("change", "text"), REFUSED)
async def test_video_a_rejects_invalid_inputs_by_name(
    video_app: AppFixture, change: dict[str, Any], text: str
) -> None:
    response = await video_app.client.post("/api/video-a", json=body_with(video_app, **change))
    assert (response.status_code, response.json()) == (400, {"error": text, "status": 400})
    assert await video_app.balance() == ("5.00", "0.00")


PRICED: list[tuple[str, dict[str, Any], str, int]] = [
    ("video-b", {}, "0.05", 5),
    ("video-c", {}, "0.36", 36),
    ("video-c", {"duration": 2.5, "image_url": None, "resolution": "720p"}, "0.18", 18),
    ("video-text", {"duration": 20}, "0.96", 96),
    ("video-text", {}, "0.24", 24),
    ("video-image", {"duration": 1}, "0.048", 5),
    ("ra2v", {}, "1.00", 100),
]


@pytest.mark.parametrize(("name", "change", "cost", "credits"), PRICED)
async def test_prices_are_the_documented_ones(
    video_app: AppFixture, name: str, change: dict[str, Any], cost: str, credits: int
) -> None:
    response = await video_app.client.post(f"/api/{name}", json=body_with(video_app, **change))
    assert response.status_code == 200, response.text
    body = response.json()
    assert (body["cost"], body["credits_charged"]) == (cost, credits)
    url = body.get("video_url") or body["video"]["url"]
    properties = await video_properties(video_app, url)
    assert properties["sound"] is (name in ("video-text", "video-image"))
    if "video" in body:
        assert set(body["video"]) == {"url", "width", "height", "duration", "fps", "content_type"}
        assert (body["video"]["width"], body["video"]["height"]) == properties["size"]
    assert await video_app.faults() == ()


BACKENDS = [
    ({}, "video-a"),
    ({"image_url": None}, "video-c"),
    ({"prompt": "waves with the sound of gulls"}, "video-image"),
    ({"prompt": "a choir singing in a cave", "image_url": None}, "video-text"),
]


@pytest.mark.parametrize(("change", "backend"), BACKENDS)
async def test_ra2v_selects_a_backend_and_names_it(
    video_app: AppFixture, change: dict[str, Any], backend: str
) -> None:
    response = await video_app.client.post("/api/ra2v", json=body_with(video_app, **change))
    assert response.status_code == 200, response.text
    body = response.json()
    assert set(body) == {"video_url", "cost", "credits_charged", "backend_used"}
    assert body["backend_used"] == backend
    assert (await video_properties(video_app, body["video_url"]))["sound"] is (
        backend in ("video-text", "video-image")
    )


@pytest.mark.parametrize(
    ("name", "text"), [("video-c", "Prompt is required"), ("ra2v", "Prompt is required")]
)
async def test_prompt_is_required_for_text_to_video(video_app: AppFixture, name: str, text: str) -> None:
    response = await video_app.client.post(f"/api/{name}", json=body_with(video_app, prompt=""))
    assert (response.status_code, response.json()) == (400, {"error": text, "status": 400})


@pytest.mark.parametrize("name", ["video-b", "video-image"])
async def test_prompt_is_optional_for_image_to_video(video_app: AppFixture, name: str) -> None:
    good = await video_app.client.post(f"/api/{name}", json=body_with(video_app, prompt=None, duration=1))
    without = await video_app.client.post(f"/api/{name}", json=body_with(video_app, image_url=None))
    assert good.status_code == 200
    assert (without.status_code, without.json()["error"]) == (400, "Invalid image_url: it is required")


@pytest.mark.parametrize("duration", [0, 0.9, 20.1, 21, "5", True])
async def test_a_duration_is_one_to_twenty_seconds(video_app: AppFixture, duration: Any) -> None:
    for name in ("video-c", "video-text", "video-image"):
        answer = await video_app.client.post(f"/api/{name}", json=body_with(video_app, duration=duration))
        number = "a number " if isinstance(duration, str | bool) else ""
        actual = "" if number else f" (got {duration})"
        response = f"Invalid duration: it must be {number}from 1 to 20{actual}"
        assert (answer.status_code, answer.json()) == (400, {"error": response, "status": 400})


@pytest.mark.parametrize("name", VIDEO_ROUTES)
async def test_key_is_checked_first_and_balance_last(video_app: AppFixture, name: str) -> None:
    keyless = await video_app.client.post(f"/api/{name}", json={"image_url": 5})
    poor = await video_app.client.post(f"/api/{name}", json=body_with(video_app, api_key=video_app.poor))
    wrong = await video_app.client.post(
        f"/api/{name}", json=body_with(video_app, api_key=video_app.poor, seed=-1)
    )
    assert (keyless.status_code, keyless.json()["error"]) == (401, "Invalid API key")
    assert (wrong.status_code, wrong.json()["error"]) == (400, f"Invalid seed: it must be {SEEDS} (got -1)")
    assert (poor.status_code, poor.json()) == (402, {"error": "Insufficient credits", "status": 402})


@pytest.mark.parametrize("name", ["video-a", "video-text", "ra2v"])
async def test_failed_video_has_an_error_and_is_free(tmp_path: Path, name: str) -> None:
    points = f"engine.run.{name}=fail"
    async with running_app(tmp_path, short_videos(), failpoints=points, max_attempts=1) as app:
        response = await app.client.post(f"/api/{name}", json=body_with(app))
        queued = await app.client.post(f"/api/{name}", json=body_with(app, response_mode="polling"))
        job = await finished_job(app, queued.json()["status_url"])
        assert (response.status_code, response.json()) == (500, FAILED)
        assert (job["status"], job["error"]) == ("failed", FAILED["error"])
        assert await app.balance() == ("5.00", "0.00")
        assert await app.faults() == ()


async def test_image_refused_by_the_decoder_is_free(video_app: AppFixture) -> None:
    file = io.BytesIO()
    Image.effect_noise((400, 300), 80).save(file, "PNG")
    cut = base64.b64encode(file.getvalue()[: len(file.getvalue()) // 2]).decode()
    response = await video_app.client.post(
        "/api/video-a", json=body_with(video_app, image_url=f"data:image/png;base64,{cut}")
    )
    assert (response.status_code, response.json()) == (400, BAD)
    assert await video_app.balance() == ("5.00", "0.00")


async def test_video_canceled_during_its_run_is_free(tmp_path: Path) -> None:
    document = app_catalog.models_document()
    async with running_app(tmp_path, document) as app:
        queued = await app.client.post(
            "/api/video-a",
            json=body_with(app, num_frames=121, num_interpolated_frames=4, response_mode="polling"),
        )
        url = queued.json()["status_url"]
        async with asyncio.timeout(60):
            while (await app.client.get(url)).json()["progress"] < 0.13:  # noqa: ASYNC110 - over HTTP
                await asyncio.sleep(0.02)
        await app.client.delete(url)
        job = await finished_job(app, url)
        assert job["status"] == "canceled"
        assert job["progress"] < 0.9
        assert await app.balance() == ("5.00", "0.00")


async def test_other_methods_are_refused(video_app: AppFixture) -> None:
    for name in VIDEO_ROUTES:
        response = await video_app.client.get(f"/api/{name}")
        assert (response.status_code, response.json()) == (
            405,
            {"error": "Method not allowed", "status": 405},
        )
