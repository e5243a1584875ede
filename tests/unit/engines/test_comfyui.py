"""The image engine on ComfyUI, against a loopback server."""

from __future__ import annotations

import asyncio
import dataclasses
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import pytest
from PIL import Image

from sixfold.clients.comfyui import errors as comfyui_errors
from sixfold.core.catalog.engines import Canceled, EngineError, Result, Task, UnusableInput
from sixfold.engines.host_services import HostServices
from sixfold.engines.image.headers import UnreadableImage
from sixfold.engines.providers.comfyui.engine import ComfyEngine, probe
from tests.fakes.comfyui import Comfy, comfyui
from tests.fakes.comfyui_faults import cut_off, endless
from tests.fakes.comfyui_nodes import InstalledFiles

EMPTY = InstalledFiles(checkpoints=(), upscale_models=())
SPLIT = InstalledFiles(
    checkpoints=(),
    diffusion_models=("z_image_turbo_bf16.safetensors",),
    text_encoders=("qwen_3_4b.safetensors",),
    vae=("ae.safetensors",),
)


@dataclass
class Beyond:
    client: httpx.AsyncClient
    # The URL is an option of the engine.
    comfyui: None = None

    def key(self, name: str) -> str:
        return f"no {name}"[:0]

    async def download(self, url: str, target: Path, *, max_bytes: int) -> str:
        raise AssertionError(f"{url} to {target}, {max_bytes}: nothing is fetched this way")


def outside(client: httpx.AsyncClient) -> HostServices:
    return cast("HostServices", Beyond(client))


@dataclass
class Context:
    """A context that records progress and log lines."""

    scratch: Path = Path()
    fractions: list[float] = field(default_factory=list[float])
    lines: list[str] = field(default_factory=list[str])
    canceled: bool = False

    def progress(self, fraction: float) -> None:
        self.fractions.append(fraction)
        if self.canceled:
            raise Canceled

    def log(self, line: str) -> None:
        self.lines.append(line)


@dataclass
class ComfySetup:
    """A fake ComfyUI, an engine that uses it, and the context of the last run."""

    comfy: Comfy
    engine: ComfyEngine
    client: httpx.AsyncClient
    folder: Path
    context: Context

    async def run(self, model: str = "ra2", files: dict[str, Path] | None = None, **inputs: Any) -> Result:
        return await self.engine.run(Task("t", model, inputs, files or {}), self.context)

    def file(self, image: Image.Image, name: str = "source.png", **options: Any) -> dict[str, Path]:
        path = self.folder / name
        image.save(path, **options)
        return {"source_image_url": path}

    def graph(self) -> dict[str, Any]:
        entry = list(self.comfy.history.values())[-1]["prompt"][2]
        return {node["class_type"]: node["inputs"] for node in entry.values()}


@asynccontextmanager
async def comfy_setup(
    folder: Path, installed: InstalledFiles | None = None, **options: str
) -> AsyncIterator[ComfySetup]:
    async with comfyui(installed) as comfy, httpx.AsyncClient(trust_env=False) as client:
        engine = ComfyEngine(outside(client), url=comfy.url, **options)
        yield ComfySetup(comfy, engine, client, folder, Context(folder))


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[ComfySetup]:
    async with comfy_setup(tmp_path) as built:
        yield built


def decode(result: Result, index: int = 0) -> Image.Image:
    return Image.open(io.BytesIO(result.artifacts[index].data))


# -- text to image -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1024, 1024), (1360, 768), (333, 1000), (64, 64), (64, 640)])
async def test_image_has_the_requested_size(setup: ComfySetup, size: tuple[int, int]) -> None:
    result = await setup.run(prompt="a lake", width=size[0], height=size[1], seed=1, format="png")
    output = decode(result)
    assert (output.format, output.size) == ("PNG", size)
    assert result.artifacts[0].info == {"width": size[0], "height": size[1]}
    assert result.quality == "full"


TURBO = InstalledFiles(checkpoints=("sd_turbo.safetensors",), upscale_models=("RealESRGAN_x2.pth",))


async def test_size_above_that_of_the_model_is_upscaled(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path, TURBO) as built:
        assert decode(await built.run(prompt="a lake", width=1024, height=768, seed=1)).size == (1024, 768)
        assert "ImageUpscaleWithModel" in built.comfy.executed_classes


async def test_large_image_is_resized_without_an_upscaler(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path, dataclasses.replace(TURBO, upscale_models=())) as built:
        assert decode(await built.run(prompt="a lake", width=1024, height=768, seed=1)).size == (1024, 768)
        assert "ImageUpscaleWithModel" not in built.comfy.executed_classes


async def test_image_depends_only_on_the_seed(setup: ComfySetup) -> None:
    first, second, other = [
        (await setup.run(prompt="a lake", width=512, height=512, seed=seed)).artifacts[0].data
        for seed in (5, 5, 6)
    ]
    assert first == second
    assert first != other


async def test_several_images_are_one_batch_with_an_artifact_each(setup: ComfySetup) -> None:
    result = await setup.run("anime", prompt="a cat", num_images=3, width=768, height=768, seed=2)
    assert len({artifact.data for artifact in result.artifacts}) == 3
    assert setup.comfy.called("/prompt") == 1
    assert setup.graph()["EmptyLatentImage"]["batch_size"] == 3


async def test_batch_above_the_memory_runs_singly_with_equal_images(setup: ComfySetup) -> None:
    order = {"prompt": "a cat", "num_images": 3, "width": 768, "height": 768, "seed": 2}
    at_once = await setup.run("anime", **order)
    setup.comfy.memory = 1
    setup.comfy._cache.clear()
    setup.context.fractions.clear()
    one_by_one = await setup.run("anime", **order)
    assert [a.data for a in one_by_one.artifacts] == [a.data for a in at_once.artifacts]
    assert setup.comfy.called("/prompt") == 1 + 1 + 3
    assert setup.context.lines[-1].startswith("ComfyUI has too little memory for 3 images at once")
    assert setup.context.fractions[-1] == 1.0
    setup.comfy.memory = 0
    setup.comfy._cache.clear()
    with pytest.raises(EngineError, match="out of memory in KSampler"):
        await setup.run("anime", **order)


@pytest.mark.parametrize(
    ("format_", "magic"),
    [("webp", b"RIFF"), ("jpeg", b"\xff\xd8"), ("png", b"\x89PNG"), ("jpg", b"\xff\xd8")],
)
async def test_image_has_the_requested_format(setup: ComfySetup, format_: str, magic: bytes) -> None:
    result = await setup.run("create_image", prompt="a lake", width=256, height=256, seed=1, format=format_)
    assert result.artifacts[0].data.startswith(magic)
    assert result.artifacts[0].content_type == f"image/{format_.replace('jpg', 'jpeg')}"


async def test_prompt_is_sent_with_the_style_of_the_model(setup: ComfySetup) -> None:
    await setup.run("ra1", prompt="a {} lake", negative_prompt="people", width=512, height=512, seed=1)
    entry = list(setup.comfy.history.values())[-1]["prompt"][2].values()
    texts = [node["inputs"]["text"] for node in entry if node["class_type"] == "CLIPTextEncode"]
    assert texts == ["a {} lake, painterly, visible brush strokes, rich colour", "people"]


async def test_model_with_separate_parts_is_loaded(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path, SPLIT) as built:
        await built.run(prompt="a lake", width=512, height=512, seed=1)
        graph = built.graph()
    assert graph["CLIPLoader"] == {"clip_name": "qwen_3_4b.safetensors", "type": "lumina2"}
    assert graph["ModelSamplingAuraFlow"]["shift"] == 3.0
    assert (graph["KSampler"]["steps"], graph["KSampler"]["cfg"]) == (8, 1.0)
    # With a cfg of 1, the negative prompt has no effect.
    assert "ConditioningZeroOut" in graph


async def test_image_has_no_metadata_of_the_comfyui_server(setup: ComfySetup) -> None:
    for format_ in ("png", "webp", "jpeg"):
        result = await setup.run(prompt="a lake", width=256, height=256, seed=1, format=format_)
        assert b"sd_xl_base" not in result.artifacts[0].data
    remaining = [data for (folder, _), data in setup.comfy.files.items() if folder == "temp"]
    # The server's own files contain the metadata.
    assert all(b"sd_xl_base" in data for data in remaining)


async def test_progress_increases_to_one_and_the_log_names_the_model(setup: ComfySetup) -> None:
    await setup.run(prompt="a lake", width=256, height=256, seed=1)
    assert setup.context.fractions == sorted(setup.context.fractions)
    assert setup.context.fractions[-1] == 1.0
    assert len(setup.context.fractions) > 20
    assert setup.context.lines == ["ComfyUI 0.8.0: sd_xl_base_1.0.safetensors"]


async def test_the_version_names_comfyui_and_the_models(setup: ComfySetup) -> None:
    await setup.run(prompt="a lake", width=256, height=256, seed=1)
    assert setup.engine.version == "1/comfyui-0.8.0/sd_xl_base_1.0/RealESRGAN_x4plus"


# -- image to image, and upscaling ---------------------------------------------------------------


def halves(size: tuple[int, int] = (600, 400)) -> Image.Image:
    """Return an image that is red on the left and blue on the right."""
    image = Image.new("RGB", size, (220, 20, 20))
    image.paste((20, 20, 220), (size[0] // 2, 0, *size))
    return image


def sides(image: Image.Image) -> tuple[float, float]:
    """Return the difference of red and blue in the left and the right half."""
    pixels = np.asarray(image.convert("RGB"), np.float32)
    middle = pixels.shape[1] // 2
    redder = pixels[..., 0] - pixels[..., 2]
    return float(redder[:, :middle].mean()), float(redder[:, middle:].mean())


async def test_image_to_image_keeps_size_and_layout(setup: ComfySetup) -> None:
    files = setup.file(halves())
    result = await setup.run("style-transfer", files, style_prompt="oil", strength=0.3, seed=1, format="webp")
    output = decode(result)
    assert (output.format, output.size) == ("WEBP", (600, 400))
    left, right = sides(output)
    assert left > 60
    assert right < -60


async def test_strength_sets_the_distance_from_the_source(setup: ComfySetup) -> None:
    files = setup.file(halves())
    near, far = [
        sides(decode(await setup.run("style-transfer", files, style_prompt="oil", strength=strength, seed=1)))
        for strength in (0.1, 0.9)
    ]
    assert near[0] - near[1] > 2 * abs(far[0] - far[1])


async def test_photo_with_an_exif_orientation_becomes_upright(setup: ComfySetup) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    files = setup.file(halves((400, 600)).rotate(90, expand=True), "turned.jpg", exif=exif)
    assert decode(await setup.run("style-transfer", files, style_prompt="oil", seed=1)).size == (400, 600)


async def test_alpha_of_the_source_is_kept(setup: ComfySetup) -> None:
    image = halves().convert("RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    result = await setup.run("style-transfer", setup.file(image), style_prompt="oil", seed=1, format="png")
    output = decode(result)
    assert output.mode == "RGBA"
    alpha = np.asarray(output)[..., 3].astype(int)
    assert abs(alpha - np.asarray(image)[..., 3]).max() <= 3


async def test_opaque_source_gives_an_image_without_alpha(setup: ComfySetup) -> None:
    image = halves().convert("RGBA")
    result = await setup.run("style-transfer", setup.file(image), style_prompt="oil", seed=1, format="png")
    assert decode(result).mode == "RGB"


async def test_source_is_uploaded_once_to_the_temporary_folder(setup: ComfySetup) -> None:
    for seed in (1, 2):
        await setup.run("style-transfer", setup.file(halves()), style_prompt="oil", seed=seed)
    uploaded = [key for key in setup.comfy.files if key[1].startswith("sixfold-")]
    assert [folder for folder, _ in uploaded] == ["temp"]
    assert not [key for key in setup.comfy.files if key[0] == "output"]


async def test_upscale_needs_no_prompt(setup: ComfySetup) -> None:
    files = setup.file(halves((100, 60)))
    assert decode(await setup.run("upscale", files, scale=3)).size == (300, 180)
    assert decode(await setup.run("upscale", files, width=500)).size == (500, 300)
    assert decode(await setup.run("upscale", files)).size == (200, 120)
    assert "KSampler" not in setup.comfy.executed_classes


async def test_too_large_upscale_is_a_client_error(setup: ComfySetup) -> None:
    with pytest.raises(UnusableInput, match="at most 40 megapixels"):
        await setup.run("upscale", setup.file(halves()), scale=100)


async def test_animated_source_is_a_client_error(setup: ComfySetup) -> None:
    frames = [halves(), halves((600, 400)).rotate(180)]
    moving = setup.file(frames[0], "moving.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(UnusableInput, match="animated"):
        await setup.run("style-transfer", moving, style_prompt="oil", seed=1)
    path = setup.folder / "text.png"
    path.write_bytes(b"no picture")
    with pytest.raises(UnreadableImage):
        await setup.run("style-transfer", {"source_image_url": path}, style_prompt="oil", seed=1)
    assert setup.comfy.called("/prompt") == 0


async def test_source_that_comfyui_cannot_read_is_a_client_error(setup: ComfySetup) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (100, 100, 3), dtype=np.uint8)
    full_path = setup.file(Image.fromarray(noise))["source_image_url"]
    full_path.write_bytes(full_path.read_bytes()[:10_000])
    with pytest.raises(UnusableInput, match="ComfyUI could not read the image"):
        await setup.run("style-transfer", {"source_image_url": full_path}, style_prompt="oil", seed=1)


# -- what the server has, and what it lacks ------------------------------------------------------


async def test_error_without_models_names_a_file_and_its_folder(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path, EMPTY) as built:
        with pytest.raises(EngineError, match=r"sd_xl_base_1\.0\.safetensors into its folder models/check"):
            await built.run(prompt="a lake", width=64, height=64)
        with pytest.raises(
            EngineError, match=r"RealESRGAN_x4plus\.safetensors into its folder models/upscale"
        ):
            await built.run("upscale", built.file(halves()))
        assert built.comfy.called("/prompt") == 0


async def test_error_names_the_missing_parts_of_a_model(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path, dataclasses.replace(SPLIT, text_encoders=())) as built:
        with pytest.raises(EngineError, match=r"z_image_turbo_bf16.* missing: .*text_encoders/qwen_3_4b"):
            await built.run(prompt="a lake", width=64, height=64)


async def test_removed_model_is_replaced_by_an_installed_one(setup: ComfySetup) -> None:
    await setup.run(prompt="a lake", width=256, height=256, seed=1)
    setup.comfy.installed = InstalledFiles(checkpoints=("v1-5-pruned-emaonly.ckpt",))
    result = await setup.run(prompt="a lake", width=256, height=256, seed=2)
    assert result.data["checkpoint"] == "v1-5-pruned-emaonly.ckpt"


async def test_best_model_is_used_unless_another_is_pinned(tmp_path: Path) -> None:
    installed = InstalledFiles(checkpoints=("v1-5-pruned-emaonly.ckpt", "XL/sd_xl_base_1.0.safetensors"))
    async with comfy_setup(tmp_path, installed) as built:
        best = await built.run(prompt="a lake", width=256, height=256)
        small = "v1-5-pruned-emaonly.ckpt"
        pinned = ComfyEngine(outside(built.client), url=built.comfy.url, checkpoint=small)
        chosen = await pinned.run(
            Task("t", "ra2", {"prompt": "a", "width": 64, "height": 64}), Context(tmp_path)
        )
        lost = ComfyEngine(outside(built.client), url=built.comfy.url, checkpoint="gone.safetensors")
        with pytest.raises(EngineError, match="does not have the model gone"):
            await lost.run(Task("t", "ra2", {"prompt": "a"}), Context(tmp_path))
    assert best.data["checkpoint"] == "XL/sd_xl_base_1.0.safetensors"
    assert chosen.data["checkpoint"] == small


async def test_model_family_is_read_from_file_metadata(tmp_path: Path) -> None:
    stated = {"mix.safetensors": {"modelspec.architecture": "stable-diffusion-xl-v1-base"}}
    async with comfy_setup(
        tmp_path, InstalledFiles(checkpoints=("mix.safetensors",), metadata=stated)
    ) as built:
        await built.run(prompt="a lake", width=1024, height=1024)
        assert built.graph()["EmptyLatentImage"]["width"] == 1024


async def test_probe_reports_the_capabilities_of_a_server(setup: ComfySetup) -> None:
    result = await probe(setup.client, setup.comfy.url)
    assert (result.problem, result.version, result.device) == ("", "0.8.0", "cuda:0 Fake GPU")
    assert result.memory_free_bytes == 20 * 2**30
    assert result.serves == {
        "text-to-image": "sd_xl_base_1.0.safetensors",
        "image-to-image": "sd_xl_base_1.0.safetensors",
        "fill": "sd_xl_base_1.0.safetensors",
        "upscale": "RealESRGAN_x4plus.safetensors",
    }


async def test_probe_of_a_server_without_models_reports_missing_ones(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path, EMPTY) as built:
        result = await probe(built.client, built.comfy.url)
    assert result.serves == {}
    assert set(result.missing) == {
        "text-to-image",
        "image-to-image",
        "fill",
        "upscale",
        "text-to-film",
        "image-to-film",
    }


async def test_probe_reports_absent_servers_and_other_programs(setup: ComfySetup) -> None:
    setup.comfy.responses["/system_stats"] = b'{"status": "ok"}'
    other = await probe(setup.client, setup.comfy.url)
    assert other.problem == "The server at this address is not ComfyUI."
    setup.comfy.silent.add("/system_stats")
    slow = await probe(setup.client, setup.comfy.url, seconds=0.2)
    assert slow.problem == "ComfyUI did not respond within 0.2 seconds."
    await setup.comfy.stop()
    assert (await probe(setup.client, setup.comfy.url)).problem == "ComfyUI cannot be reached."
    assert (await probe(setup.client, "nonsense")).problem.startswith("SIXFOLD_COMFYUI_URL must")


# -- errors --------------------------------------------------------------------------------------


async def test_canceled_run_is_interrupted_on_the_server(setup: ComfySetup) -> None:
    hold = setup.comfy.hold("KSampler")
    run = asyncio.create_task(setup.run(prompt="a lake", width=256, height=256, seed=1))
    async with asyncio.timeout(60):
        await hold.reached.wait()
    setup.context.canceled = True
    hold.go.set()
    with pytest.raises(Canceled):
        await run
    assert setup.comfy.called("/interrupt") == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"<html>not a picture</html>", "an image that cannot be read"),
        (b"", "an image that cannot be read"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\1\0\x08\2\0\0\0", "an image that cannot be read"),
        (cut_off(5000, b"\x89PNG"), "connection to ComfyUI was lost"),
        (endless(b"x" * 2**20), "larger than 64 MiB"),
    ],
    ids=["page", "empty", "half", "cut", "endless"],
)
async def test_response_without_an_image_fails(setup: ComfySetup, answer: Any, message: str) -> None:
    setup.comfy.responses["/view"] = answer
    with pytest.raises(EngineError, match=message):
        await setup.run(prompt="a lake", width=256, height=256, seed=1)


async def test_fewer_images_than_requested_fail_the_run(setup: ComfySetup) -> None:
    await setup.run(prompt="a lake", width=256, height=256, seed=1, num_images=2)
    for result in setup.comfy._cache.values():
        if isinstance(result, dict):
            result["images"].pop()
    with pytest.raises(EngineError, match="ComfyUI returned 1 of 2 images"):
        await setup.run(prompt="a lake", width=256, height=256, seed=1, num_images=2)


async def test_models_of_a_restarted_server_are_read_again(setup: ComfySetup) -> None:
    setup.comfy.raises["KSampler"] = ("RuntimeError", "no")
    with pytest.raises(comfyui_errors.ComfyNodeFailed):
        await setup.run(prompt="a lake", width=256, height=256, seed=1)
    setup.comfy.raises.clear()
    setup.comfy.installed = InstalledFiles(checkpoints=("sd_turbo.safetensors",))
    result = await setup.run(prompt="a lake", width=256, height=256, seed=1)
    assert result.data["checkpoint"] == "sd_turbo.safetensors"
