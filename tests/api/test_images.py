"""Image models of the Media API with real engines: photoreal, smart-resize, remove-background."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from sixfold.engines.image.resize import plan
from tests.api import media_samples
from tests.api.app_fixture import AppFixture, running_app
from tests.corpora import composites
from tests.harness import image_files
from tests.harness.cases import nightly_after
from tests.unit.engines import onnx_model
from tests.unit.net import corpus

RATIOS = {"1:1": 1.0, "16:9": 16 / 9, "9:16": 9 / 16, "4:3": 4 / 3, "3:4": 3 / 4, "3:2": 1.5, "2:3": 2 / 3}
CUT = ("/api/remove-background", "/alt/api/remove-background")


def uri(data: bytes, kind: str = "image/png") -> str:
    return image_files.data_uri(data, kind)


def png(image: Any, kind: str = "PNG", **options: Any) -> bytes:
    return image_files.encode(
        image if isinstance(image, Image.Image) else Image.fromarray(image), kind, **options
    )


def subject(seed: int = 3, size: tuple[int, int] = (180, 240)) -> bytes:
    return png(composites.composite(seed, "plain", size).rgb)


async def fetch_image(app: AppFixture, url: str) -> Image.Image:
    """Return the file at a result's URL."""
    response = await app.client.get(url)
    assert response.status_code == 200
    return Image.open(io.BytesIO(response.content))


async def finished_job(app: AppFixture, answer: Any) -> dict[str, Any]:
    """Wait until the job of a polling response has ended, and return it."""
    assert answer.status_code == 202
    assert set(answer.json()) == {"job_id", "status", "status_url"}
    return await media_samples.finished_job(app, answer.json()["status_url"])


@pytest.mark.parametrize("ratio", nightly_after(3, sorted(RATIOS)))
@pytest.mark.parametrize(
    ("resolution", "side", "cost", "credit"),
    [("1K", 1024, "0.07", 7), ("2K", 2048, "0.07", 7), ("4K", 4096, "0.15", 15)],
)
async def test_photoreal_has_exact_pixels_on_the_long_side(
    app: AppFixture, ratio: str, resolution: str, side: int, cost: str, credit: int
) -> None:
    body = {"api_key": app.key, "prompt": "a lake", "aspect_ratio": ratio, "resolution": resolution}
    document = (await app.client.post("/api/photoreal", json=body)).json()
    width, height = map(int, document["size_used"].split("x"))
    assert max(width, height) == side
    assert abs(width / height - RATIOS[ratio]) < 0.001
    assert (document["cost"], document["credits_charged"]) == (cost, credit)
    assert set(document) == {"image_url", "prompt_used", "size_used", "cost", "credits_charged", "request_id"}


async def test_photoreal_image_has_the_size_of_the_response(real: AppFixture) -> None:
    prompt = "an okapi by a mountain lake at dawn, Ærø"
    body = {"api_key": real.key, "prompt": prompt, "aspect_ratio": "3:2"}
    response = await real.client.post("/api/photoreal", json=body)
    document = response.json()
    assert (document["size_used"], (await fetch_image(real, document["image_url"])).size) == (
        "1024x683",
        (1024, 683),
    )
    assert response.headers["X-Sixfold-Quality"] == "preview"
    assert response.headers["X-Sixfold-Ignored"] == "okapi, %C3%A6r%C3%B8"
    assert await real.balance() == ("4.93", "0.00")
    (row,) = (await real.client.get("/api/containers/predictions", headers=real.bearer)).json()["predictions"]
    assert row["understood"] == ["mountain", "lake", "dawn"]
    assert row["ignored"] == ["okapi", "ærø"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"prompt": ""}, "Prompt is required"),
        ({"prompt": "x" * 4001}, "Prompt must be at most 4000 characters"),
        (
            {"aspect_ratio": "5:4"},
            "Invalid aspect_ratio: it must be one of 1:1, 16:9, 9:16, 4:3, 3:4, 3:2, 2:3 (got 5:4)",
        ),
        ({"resolution": "8K"}, "Invalid resolution: it must be one of 1K, 2K, 4K (got 8K)"),
        ({"resolution": 4}, "Invalid resolution: it must be one of 1K, 2K, 4K (got 4)"),
    ],
)
async def test_photoreal_errors_name_the_parameter(
    app: AppFixture, change: dict[str, Any], text: str
) -> None:
    response = await app.client.post("/api/photoreal", json={"api_key": app.key, "prompt": "x", **change})
    assert (response.status_code, response.json()) == (400, {"error": text, "status": 400})
    assert await app.balance() == ("5.00", "0.00")


async def test_resize_returns_sizes_in_order_and_charges_per_output(real: AppFixture) -> None:
    sizes: list[Any] = ["90x160", {"width": 400, "height": 100}, "240x180", "16x16"]
    body = {"api_key": real.key, "image_url": uri(subject()), "target_sizes": sizes}
    response = await real.client.post("/api/smart-resize", json=body)
    document = response.json()
    assert response.headers["X-Sixfold-Quality"] == "full"
    assert set(document) == {"images", "result", "cost", "credits_charged"}
    assert (document["cost"], document["credits_charged"]) == ("0.78", 78)
    assert document["images"] == [row["url"] for row in document["result"]]
    expected = [(90, 160), (400, 100), (240, 180), (16, 16)]
    assert [(row["width"], row["height"]) for row in document["result"]] == expected
    assert [(await fetch_image(real, url)).size for url in document["images"]] == expected
    assert {row["method"] for row in document["result"]} <= {"scale", "crop", "seam-carving", "extend"}
    assert document["result"][2]["method"] == "scale"
    assert await real.balance() == ("4.22", "0.00")


WRONG_SIZES: list[Any] = [
    None,
    [],
    ["10x10"],
    ["4097x10"],
    ["100"],
    ["100X100"],
    [100],
    [["100", "100"]],
    [{"width": 100}],
    [{"width": "100", "height": 100}],
    [{"width": 100.5, "height": 100}],
    ["100x100"] * 21,
    {"a": 1},
    "x",
    "64x64",
    '["64x64"]',
    ["-20x20"],
    ["٢٠٠x200"],
]


SIZES_ERROR = re.compile(
    r"Invalid target_sizes: it (is required|must (have 1 to 20 sizes|be a list of sizes, such as .+"
    r"|be from 16 to 4096 \(got .+\)|be a whole number from 16 to 4096"
    r"|contain sizes such as \"1200x630\" or {\"width\": 1200, \"height\": 630}( \(got .+\))?))"
)


@pytest.mark.parametrize("sizes", WRONG_SIZES)
async def test_invalid_target_sizes_are_refused(app: AppFixture, sizes: Any) -> None:
    body = {"api_key": app.key, "image_url": uri(subject()), "target_sizes": sizes}
    response = await app.client.post("/api/smart-resize", json=body)
    assert (response.status_code, response.json()["status"]) == (400, 400)
    assert re.fullmatch(SIZES_ERROR, response.json()["error"]), response.json()
    assert await app.balance() == ("5.00", "0.00")


async def test_resize_takes_20_sizes_also_comma_separated_in_forms(app: AppFixture) -> None:
    many = {"api_key": app.key, "image_url": uri(subject()), "target_sizes": ["64x64"] * 20}
    assert (await app.client.post("/api/smart-resize", json=many)).json()["cost"] == "3.66"
    form = {"api_key": app.key, "image_url": uri(subject()), "target_sizes": "64x64, 32x48"}
    body = (await app.client.post("/api/smart-resize", data=form)).json()
    assert [(row["width"], row["height"]) for row in body["result"]] == [(64, 64), (32, 48)]
    assert body["cost"] == "0.42"


@pytest.mark.parametrize("path", CUT)
async def test_background_removal_keeps_size_and_cuts_out_the_subject(real: AppFixture, path: str) -> None:
    known = composites.composite(3, "plain", (180, 240))
    response = await real.client.post(path, json={"api_key": real.key, "image_url": uri(png(known.rgb))})
    body = response.json()
    assert set(body) == {"image", "cost", "credits_charged"}
    assert (body["cost"], body["credits_charged"]) == ("0.02", 2)
    assert set(body["image"]) == {"url", "width", "height", "content_type", "confidence"}
    assert body["image"]["content_type"] == "image/png"
    assert 0.5 < body["image"]["confidence"] <= 1
    cut = await fetch_image(real, body["image"]["url"])
    assert (cut.format, cut.mode, cut.size) == ("PNG", "RGBA", (240, 180))
    alpha = np.asarray(cut)[..., 3] / 255
    assert np.minimum(alpha, known.alpha).sum() / np.maximum(alpha, known.alpha).sum() > 0.85
    assert ((alpha > 0.1) & (alpha < 0.9)).any()
    assert response.headers["X-Sixfold-Engine"] == "matting"


@pytest.mark.parametrize(
    ("path", "more"), [("/api/smart-resize", {"target_sizes": ["90x120"]}), ("/api/remove-background", {})]
)
async def test_job_has_the_same_result_as_a_direct_request(
    real: AppFixture, path: str, more: dict[str, Any]
) -> None:
    body = {"api_key": real.key, "image_url": uri(subject()), **more}
    inline = (await real.client.post(path, json=body)).json()
    job = await finished_job(real, await real.client.post(path, json={**body, "response_mode": "polling"}))
    assert job["status"] == "completed"

    def without_urls(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without_urls(inner) for key, inner in value.items() if key not in {"url", "images"}}
        return [without_urls(inner) for inner in value] if isinstance(value, list) else value

    assert without_urls(job["result"]) == without_urls(inline)
    assert set(job["result"]) == set(inline)


async def test_key_parameters_and_balance_are_checked_in_order(app: AppFixture) -> None:
    ways: dict[str, dict[str, Any]] = {
        "photoreal": {"prompt": "x"},
        "smart-resize": {"target_sizes": ["64x64"]},
        "remove-background": {},
    }
    for path, more in ways.items():
        good = {"image_url": uri(subject()), **more}
        unknown = await app.client.post(f"/api/{path}", json={"api_key": "sf_no"})
        empty = await app.client.post(f"/api/{path}", json={"api_key": app.poor})
        poor = await app.client.post(f"/api/{path}", json={"api_key": app.poor, **good})
        assert [unknown.status_code, empty.status_code, poor.status_code] == [401, 400, 402]


# -- hostile and unusual images ----------------------------------------------------------------------


def hostile_images() -> dict[str, bytes]:
    """Return files that are not images, or malicious ones."""
    image = subject()
    noise = np.random.default_rng(1).integers(0, 255, (64, 64, 3), np.uint8)
    bomb = bytearray(png(Image.new("L", (8, 8))))
    bomb[16:24] = (50_000).to_bytes(4, "big") * 2
    return {
        "empty": b"",
        "text": b"hello",
        "html": b"<html><script>alert(1)</script>",
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>',
        "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "playlist": b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
        "truncated": image[: len(image) // 2],
        "head only": image[:30],
        "bomb": bytes(bomb),
        "damaged": image[:200] + b"\0" * 4000 + image[4200:],
        "truncated jpeg": png(noise, "JPEG")[:600],
        "gif of nothing": b"GIF89a\xff\xff\xff\xff",
    }


@pytest.mark.parametrize("name", sorted(hostile_images()))
@pytest.mark.parametrize(
    ("path", "more"), [("/api/smart-resize", {"target_sizes": ["64x64"]}), ("/api/remove-background", {})]
)
async def test_hostile_image_is_refused_by_name_and_free(
    real: AppFixture, name: str, path: str, more: dict[str, Any]
) -> None:
    body = {"api_key": real.key, "image_url": uri(hostile_images()[name]), **more}
    response = await real.client.post(path, json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"].startswith("Invalid image_url")
    assert set(response.json()) == {"error", "status"}
    assert await real.balance() == ("5.00", "0.00")
    assert await real.faults() == ()


def unusual_images() -> dict[str, bytes]:
    """Return unusual but valid images."""
    rgb = composites.composite(5, "plain", (120, 160)).rgb
    image = Image.fromarray(rgb)
    exif = Image.Exif()
    exif[0x0112] = 6
    frames = [Image.fromarray(np.roll(rgb, 9 * step, 1)) for step in range(3)]
    deep = (rgb[..., 0].astype(np.uint16) << 8) | rgb[..., 0]
    veil = Image.fromarray(np.dstack([rgb, np.full(rgb.shape[:2], 128, np.uint8)]))
    return {
        "CMYK": png(image.convert("CMYK"), "JPEG"),
        "16 bits": png(deep),
        "palette": png(image.quantize(16)),
        "grey": png(image.convert("L")),
        "half transparent": png(veil),
        "turned by EXIF": png(image, "JPEG", exif=exif),
        "animated": png(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "a polyglot": png(image) + b"<script>alert(1)</script>",
        "one pixel": png(Image.new("RGB", (1, 1), "red")),
        "a line": png(Image.new("RGB", (300, 1), "red")),
    }


@pytest.mark.parametrize("name", sorted(unusual_images()))
async def test_unusual_image_is_decoded_as_displayed(real: AppFixture, name: str) -> None:
    data = unusual_images()[name]
    size = {"turned by EXIF": (120, 160), "one pixel": (1, 1), "a line": (300, 1)}.get(name, (160, 120))
    common = {"api_key": real.key, "image_url": uri(data)}
    cut = (await real.client.post("/api/remove-background", json=common)).json()
    assert (await fetch_image(real, cut["image"]["url"])).size == size
    resized = await real.client.post("/api/smart-resize", json={**common, "target_sizes": ["48x64", "64x16"]})
    url = resized.json()["images"][0]
    assert (await fetch_image(real, url)).size == (48, 64)
    raw = (await real.client.get(url)).content
    assert b"<script>" not in raw
    if name == "half transparent":
        assert np.asarray(await fetch_image(real, cut["image"]["url"]))[..., 3].max() <= 129


@pytest.mark.parametrize("point", ["fail", "crash"])
@pytest.mark.parametrize("model", ["photoreal", "smart-resize", "remove-background"])
async def test_failed_or_crashed_run_is_free(tmp_path: Path, model: str, point: str) -> None:
    async with running_app(tmp_path, failpoints=f"engine.run.{model}={point}", max_attempts=1) as app:
        body = {"api_key": app.key, "prompt": "x", "image_url": uri(subject()), "target_sizes": ["64x64"]}
        response = await app.client.post(f"/api/{model}", json=body)
        assert (response.status_code, set(response.json())) == (502, {"error", "status"})
        assert response.json()["error"].endswith("failed. Please try again.")
        assert await app.balance() == ("5.00", "0.00")
        assert await app.faults() == ()


async def test_job_with_a_damaged_image_fails_with_the_reason(real: AppFixture) -> None:
    body = {"api_key": real.key, "image_url": uri(hostile_images()["damaged"]), "response_mode": "polling"}
    job = await finished_job(real, await real.client.post("/api/remove-background", json=body))
    assert (job["status"], job["error"]) == ("failed", "The image file is truncated or damaged.")
    assert await real.balance() == ("5.00", "0.00")


async def test_truncated_image_is_400_before_a_job_is_created(real: AppFixture) -> None:
    body = {"api_key": real.key, "image_url": uri(hostile_images()["truncated"]), "response_mode": "polling"}
    response = await real.client.post("/api/remove-background", json=body)
    assert (response.status_code, response.json()["error"]) == (
        400,
        "Invalid image_url: The image file is truncated or damaged.",
    )


async def test_canceled_job_is_free(tmp_path: Path) -> None:
    async with running_app(tmp_path, failpoints="engine.run.remove-background=hang") as app:
        body = {"api_key": app.key, "image_url": uri(subject()), "response_mode": "polling"}
        queued = (await app.client.post("/api/remove-background", json=body)).json()
        assert (await app.client.delete(queued["status_url"])).status_code == 200
        await app.until("5.00", "0.00")


def test_face_is_within_every_crop() -> None:
    pytest.importorskip("skimage")
    from skimage import data  # noqa: PLC0415 - the images are part of the package

    rgb = data.astronaut()
    region = plan.find_region(rgb)
    assert len(region.heads) == 1
    for target in ((100, 300), (300, 100), (160, 300), (128, 128)):
        way = plan.plan(region, (512, 512), target)
        left, top, right, bottom = region.heads[0]
        box = way.box
        assert box[0] <= left + 0.01
        assert box[1] <= top + 0.01
        assert box[2] >= right - 0.01
        assert box[3] >= bottom - 0.01
        assert way.carved is None


async def test_hostile_image_urls_do_not_reach_this_machine(real: AppFixture) -> None:
    hits: list[bytes] = []
    # Host names resolve as the corpus states.
    real.server.fetcher.resolver.lookup = corpus.lookup

    async def canary(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hits.append(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(canary, "127.0.0.1", 0)
    async with server:
        urls = [url for url in corpus.hostile_urls(server.sockets[0].getsockname()[1]) if url.isascii()][::3]
        for url in urls:
            for path, field in (("remove-background", "image_url"), ("create-post", "media_url")):
                response = await real.client.post(f"/api/{path}", json={"api_key": real.key, field: url})
                assert response.status_code == 400, url
    assert len(urls) > 20
    assert hits == []
    assert await real.balance() == ("5.00", "0.00")


async def test_configured_model_is_preferred(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    model = onnx_model.write(tmp_path / "isnet-tiny.onnx", (1, 0, 0))
    tables = {"engines": {"weights-matting": {"source": str(model)}}}
    async with running_app(tmp_path, app_catalog.models_document(), probe=False, tables=tables) as app:
        red = np.zeros((40, 60, 3), np.uint8)
        red[10:30, 15:45, 0] = 255
        body = {"api_key": app.key, "image_url": uri(png(red))}
        response = await app.client.post("/api/remove-background", json=body)
        assert response.headers["X-Sixfold-Engine"] == "weights-matting"
        assert response.headers["X-Sixfold-Quality"] == "full"
        alpha = np.asarray(await fetch_image(app, response.json()["image"]["url"]))[..., 3]
        assert (alpha[20, 30], alpha[2, 2]) == (255, 0)
