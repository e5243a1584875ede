"""Image, video and 3D templates over HTTP: by name, with their documented inputs, by real engines."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sixfold.app import catalog as app_catalog
from sixfold.core.provenance import embed
from tests.api.app_fixture import AppFixture, running_app
from tests.harness import image_files
from tests.unit.engines import engine_runs, onnx_model
from tests.unit.engines.three_d import meshes
from tests.unit.engines.video import videos

RUN = "/api/containers/run"


def uri(pixels: Any) -> str:
    return image_files.data_uri(image_files.encode(Image.fromarray(pixels)))


async def run_template(app: AppFixture, template: str, status: int = 200, /, **inputs: Any) -> dict[str, Any]:
    body = {"model": template, "input": inputs}
    response = await app.client.post(RUN, json=body, headers=app.bearer)
    assert response.status_code == status, response.text
    return response.json()


async def output(app: AppFixture, document: Mapping[str, Any]) -> bytes:
    """Return the bytes of a run's only file, with its manifest."""
    assert document["status"] == "succeeded", document["error"]
    response = await app.client.get(document["output"]["url"])
    assert response.headers["Content-Type"].startswith(document["output"]["content_type"])
    assert f'"model":"{document["model"]}"' in (embed.extract(response.content) or "")
    return response.content


async def output_image(app: AppFixture, document: Mapping[str, Any]) -> Image.Image:
    return Image.open(io.BytesIO(await output(app, document)))


async def test_text_to_image_has_the_snapped_size_and_format(real: AppFixture) -> None:
    wish = {"prompt": "a red fox", "width": 519, "height": 521, "seed": 7}
    response = await run_template(real, "anime-image", **wish, output_format="png")
    image = await output_image(real, response)
    assert (image.size, image.format) == ((512, 528), "PNG")
    assert (response["engine"], response["quality"]) == ("scene-painter", "preview")
    webp = await run_template(real, "anime-image", **wish, negative_prompt="fox")
    assert (await output_image(real, webp)).format == "WEBP"
    jpeg = await run_template(
        real, "fast-image-native", prompt="a lake", width=261, height=256, output_format="jpeg"
    )
    image = await output_image(real, jpeg)
    assert (image.size, image.format) == ((261, 256), "JPEG")
    space = await run_template(real, "fast-image-space", prompt="a lake", width=261, height=300)
    assert (await output_image(real, space)).size == (256, 304)


async def test_negative_prompt_and_template_change_the_image(real: AppFixture) -> None:
    wish = {"prompt": "a red fox on a meadow", "width": 512, "height": 512, "seed": 3, "output_format": "png"}
    result = {
        name: np.asarray(await output_image(real, await run_template(real, model, **{**wish, **more})))[
            ..., :3
        ]
        for name, model, more in (
            ("plain", "anime-image", {}),
            ("without", "anime-image", {"negative_prompt": "fox"}),
            ("native", "fast-image-native", {}),
        )
    }
    assert engine_runs.psnr(result["plain"], result["without"]) < 35
    assert engine_runs.psnr(result["plain"], result["native"]) < 20


async def test_seeds_repeat_and_minus_one_is_random(real: AppFixture) -> None:
    size = {"prompt": "hills", "width": 256, "height": 256}

    async def make(model: str, **more: Any) -> bytes:
        return np.asarray(await output_image(real, await run_template(real, model, **size, **more))).tobytes()

    native = {"output_format": "png"}
    assert await make("fast-image-native", seed=5, **native) == await make(
        "fast-image-native", seed=5, **native
    )
    assert await make("fast-image-native", seed=-1, **native) != await make("fast-image-native", **native)
    fixed = {"seed": 5, "randomize_seed": False}
    assert await make("fast-image-space", **fixed) == await make("fast-image-space", **fixed)
    assert await make("fast-image-space", seed=5) != await make("fast-image-space", seed=5)


async def test_upscaler_scales_and_face_restoration_is_503_with_remedy(real: AppFixture) -> None:
    image = uri(engine_runs.scenery((40, 50)))
    for scale, model in ((2, "anime"), (4, "general"), ("4", "general")):
        response = await run_template(real, "upscaler", image=image, scale=scale, model=model)
        assert (await output_image(real, response)).size == (50 * int(scale), 40 * int(scale))
    body = await run_template(real, "upscaler", 503, image=image, face_enhance=True)
    assert body["code"] == "engine_unavailable"
    assert "REPLICATE_API_TOKEN" in body["error"]
    wrong = await run_template(real, "upscaler", 400, scale=3, model="x")
    assert [each["input"] for each in wrong["errors"]] == ["image", "scale", "model"]


async def test_five_cutout_names_work_and_weights_serve_their_own(tmp_path: Path) -> None:
    rgb = np.full((60, 80, 3), 230, np.uint8)
    rgb[15:45, 20:60] = (200, 30, 30)
    model = onnx_model.write(tmp_path / "own.onnx", (0.0, 0.0, 0.0), bias=1.0)
    document = app_catalog.models_document()
    row = document["engines"]["weights-u2net"]
    document["engines"]["weights-u2net"] = {**row, "options": {**row["options"], "source": str(model)}}
    names = document["models"]["bg-remover"]["inputs"]["model"]["choices"]
    async with running_app(tmp_path / "home", document, probe=False) as app:
        for name in names:
            response = await run_template(app, "bg-remover", image=uri(rgb), model=name)
            assert response["engine"] == ("weights-u2net" if name == "u2net" else "matting")
            image = await output_image(app, response)
            assert (image.format, image.mode, image.size) == ("PNG", "RGBA", (80, 60))


async def test_depth_is_a_video_or_a_depth_map(real: AppFixture) -> None:
    image = uri(engine_runs.scenery((72, 96)))
    response = await run_template(real, "depth-fx", image=image, seconds=1)
    assert response["output"]["content_type"] == "video/mp4"
    assert (response["output"]["duration"], response["output_kind"]) == (1.0, "file")
    maps = [
        (await output_image(real, await run_template(real, "depth-fx", image=image, effect=name)))
        .convert("RGB")
        .tobytes()
        for name in ("depth", "heatmap", "normals")
    ]
    assert len(set(maps)) == 3


async def test_inpaint_cleaner_removes_the_masked_part(real: AppFixture) -> None:
    image = np.full((64, 64, 3), 120, np.uint8)
    image[24:40, 24:40] = (250, 0, 250)
    mask = np.zeros((64, 64), np.uint8)
    mask[24:40, 24:40] = 255
    response = await run_template(
        real, "inpaint-cleaner", image=uri(image), mask=uri(mask), grow=3, feather=2
    )
    result = np.asarray(await output_image(real, response)).astype(int)
    assert np.abs(result - 120).max() < 8
    missing = await run_template(real, "inpaint-cleaner", 400, image=uri(image), grow=65)
    assert [error["input"] for error in missing["errors"]] == ["mask", "grow"]


async def test_images_and_prompts_become_glb_files(real: AppFixture) -> None:
    rgba = np.zeros((60, 60, 4), np.uint8)
    rgba[10:50, 20:40] = (40, 160, 60, 255)
    voxels = await run_template(real, "image-to-3d-voxel", image=uri(rgba), style="voxel32")
    relief = await run_template(
        real, "image-to-3d-pbr", image=uri(rgba), resolution=1024, texture_size=1024, decimation_target=10000
    )
    words = await run_template(real, "text-to-3d", prompt="a red chair")
    for response, kind in ((voxels, "file"), (relief, "model3d"), (words, "model3d")):
        assert (response["output"]["content_type"], response["output_kind"]) == ("model/gltf-binary", kind)
        data = await output(real, response)
        meshes.read_glb(data)
        assert response["output"]["faces"] == sum(
            len(part.faces)
            for part in meshes.trimesh.load(io.BytesIO(data), file_type="glb").geometry.values()
        )
    assert (voxels["quality"], relief["quality"]) == ("full", "preview")
    body = await run_template(
        real, "image-to-3d-pbr", 400, image=uri(rgba), resolution=1200, decimation_target=9
    )
    assert [error["input"] for error in body["errors"]] == ["resolution", "decimation_target"]


async def test_image_is_vectorized_to_svg_paths(real: AppFixture) -> None:
    response = await run_template(real, "vectorizer", image=uri(engine_runs.scenery((60, 80))), preset="logo")
    assert response["output"]["content_type"] == "image/svg+xml"
    answer = await real.client.get(response["output"]["url"])
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert b"<path" in await output(real, response)


async def test_videos_from_prompts_are_encoded_and_reduced_in_colors(
    real: AppFixture, tmp_path: Path
) -> None:
    wish = {"prompt": "a lake at dawn, slow pan left", "image": "https://ignored.invalid/a.png"}
    response = await run_template(real, "video-t2v", **wish, num_frames=17, seed=2)
    result = response["output"]
    assert (result["width"], result["height"], result["fps"]) == (480, 480, 16)
    video = await output(real, response)
    upload = await real.client.post(
        "/api/uploads", content=video, headers={**real.bearer, "Content-Type": "video/mp4"}
    )
    for codec in ("h264_hw", "av1_hw"):
        wish = {"video": upload.json()["url"], "num_levels": 4, "output_codec": codec}
        second_body = await run_template(real, "video-fx", **wish)
        (tmp_path / "fx.mp4").write_bytes(await output(real, second_body))
        assert len(videos.decode(tmp_path / "fx.mp4").frames) == 17
        assert "in software" in second_body["logs"]
    body = await run_template(real, "video-t2v", 400, prompt="x", num_frames=16, resolution="1x1")
    assert [error["input"] for error in body["errors"]] == ["num_frames", "resolution"]
