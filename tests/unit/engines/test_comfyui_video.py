"""The video engine on ComfyUI, against a loopback server."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import Canceled, EngineError, Result, Task
from sixfold.engines.providers.comfyui import capabilities, video_graphs
from sixfold.engines.providers.comfyui.engine import probe
from sixfold.engines.providers.comfyui.video_engine import ComfyVideoEngine
from sixfold.engines.providers.comfyui.video_graphs import VideoSpec
from sixfold.engines.video.decoder import AudioTrack, VideoReader
from tests.fakes import comfyui_rules
from tests.fakes.comfyui import Comfy, comfyui
from tests.fakes.comfyui_nodes import InstalledFiles
from tests.unit.engines.test_comfyui import Context, outside
from tests.unit.engines.test_comfyui_graphs import SCHEMAS

WAN = InstalledFiles(
    checkpoints=(),
    diffusion_models=("wan2.2_ti2v_5B_fp16.safetensors",),
    text_encoders=("umt5_xxl_fp8_e4m3fn_scaled.safetensors",),
    vae=("wan2.2_vae.safetensors", "wan_2.1_vae.safetensors"),
)
WORDS = dataclasses.replace(WAN, diffusion_models=("wan2.1_t2v_1.3B_fp16.safetensors",))
LTX = InstalledFiles(
    checkpoints=("ltx-video-2b-v0.9.5.safetensors",), text_encoders=("t5xxl_fp16.safetensors",)
)
FEW = dataclasses.replace(LTX, checkpoints=("ltxv-2b-0.9.8-distilled.safetensors",))
SCENE = {"prompt": "waves at night", "duration": 1, "frames_per_second": 24, "width": 64, "height": 36}


@dataclass
class ComfySetup:
    """A fake ComfyUI, an engine that uses it, and the context of the last run."""

    comfy: Comfy
    engine: ComfyVideoEngine
    client: httpx.AsyncClient
    folder: Path
    context: Context = field(default_factory=Context)

    async def run(self, model: str = "video-c", picture: bool = False, **inputs: Any) -> Result:
        files: dict[str, Path] = {}
        if picture:
            files["image_url"] = self.folder / "source.png"
            Image.new("RGB", (300, 200), (100, 100, 100)).save(files["image_url"])
        self.context.scratch = self.folder
        return await self.engine.run(Task("t", model, {**SCENE, **inputs}, files), self.context)

    def nodes(self, class_type: str) -> list[dict[str, Any]]:
        entry = list(self.comfy.history.values())[-1]["prompt"][2]
        return [node["inputs"] for node in entry.values() if node["class_type"] == class_type]


@asynccontextmanager
async def comfy_setup(
    folder: Path, installed: InstalledFiles = WAN, **options: Any
) -> AsyncIterator[ComfySetup]:
    async with comfyui(installed) as comfy, httpx.AsyncClient(trust_env=False) as client:
        yield ComfySetup(comfy, ComfyVideoEngine(outside(client), url=comfy.url, **options), client, folder)


def levels(result: Result) -> list[float]:
    """Return the brightness of each frame."""
    path = result.artifacts[0].path
    assert path is not None
    with closing(VideoReader(path)) as reel:
        return [float(reel.pixels(frame, (32, 18)).mean()) for frame in reel.each()]


async def test_text_to_video_has_the_requested_frames_size_and_audio(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path) as setup:
        result = await setup.run("video-text", sound=True, seed=3)
    (artifact,) = result.artifacts
    assert artifact.content_type == "video/mp4"
    assert artifact.info == {"width": 64, "height": 36, "duration": pytest.approx(1, abs=0.03), "fps": 24}
    brightness = levels(result)
    assert len(brightness) == 24
    assert np.all(np.diff(brightness[::4]) > 2), "in their order"
    assert artifact.path is not None
    with closing(AudioTrack(artifact.path)) as voice:
        assert np.abs(voice.read(24_000)).max() > 0.02
    assert (result.quality, result.data["seed"]) == ("full", 3)
    assert result.data["checkpoint"] == "wan2.2_ti2v_5B_fp16.safetensors"


async def test_graph_fits_the_model_and_has_the_inputs(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path) as setup:
        request = {"num_frames": 81, "frames_per_second": 16, "num_inference_steps": 9, "guidance_scale": 4.5}
        await setup.run("video-a", picture=True, negative_prompt="people", seed=5, **request)
        (latent,) = setup.nodes("Wan22ImageToVideoLatent")
        assert (latent["width"], latent["height"], latent["length"]) == (1280, 704, 81)
        (sampler,) = setup.nodes("KSampler")
        assert [sampler[name] for name in ("seed", "steps", "cfg", "sampler_name")] == [5, 9, 4.5, "uni_pc"]
        assert {node["text"] for node in setup.nodes("CLIPTextEncode")} == {"waves at night", "people"}
        assert setup.nodes("CreateVideo")[0]["fps"] == 16
        assert latent["start_image"]


async def test_video_by_frame_count_has_all_and_interpolated_frames(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path) as setup:
        result = await setup.run(
            "video-a",
            picture=True,
            num_frames=81,
            frames_per_second=16,
            interpolator_model="film",
            num_interpolated_frames=1,
        )
    brightness = levels(result)
    assert (len(brightness), result.artifacts[0].info["fps"]) == (161, 32)
    assert brightness[0] == pytest.approx(100, abs=3), "it begins with the picture"
    assert np.all(np.diff(brightness[:60:4]) > 1)


async def test_long_video_chunks_start_from_the_last_frame(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path) as setup:
        result = await setup.run(picture=True, duration=7)
        lengths = [node["length"] for node in setup.nodes("Wan22ImageToVideoLatent")]
        seeds = [node["seed"] for node in setup.nodes("KSampler")]
    assert (lengths, seeds) == ([121, 49], [0, 1])
    brightness = levels(result)
    assert len(brightness) == 168
    assert max(abs(step) for step in np.diff(brightness)) < 6, "no jump where two pieces meet"
    assert sorted(setup.context.fractions) == setup.context.fractions


async def test_ltx_model_runs_text_to_video_and_image_to_video(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path, LTX) as setup:
        await setup.run(num_inference_steps=4)
        assert setup.nodes("EmptyLTXVLatentVideo")[0]["length"] == 33
        assert setup.nodes("LTXVScheduler")[0]["steps"] == 4
        result = await setup.run(picture=True, num_inference_steps=4)
        assert setup.nodes("LTXVImgToVideo")[0]["image"]
        assert setup.nodes("LTXVConditioning")[0]["frame_rate"] == 25
    assert levels(result)[0] == pytest.approx(100, abs=3)


async def test_distilled_model_keeps_its_steps(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path, FEW) as setup:
        await setup.run(num_inference_steps=27, guidance_scale=3.5)
        assert (setup.nodes("LTXVScheduler")[0]["steps"], setup.nodes("SamplerCustom")[0]["cfg"]) == (8, 1)


@pytest.mark.parametrize(
    ("lacking", "saver"),
    [
        ({"VHS_VideoCombine"}, "SaveVideo"),
        ({"VHS_VideoCombine", "SaveVideo", "CreateVideo"}, "SaveWEBM"),
        ({"SaveWEBM", "SaveVideo"}, "VHS_VideoCombine"),
    ],
)
async def test_video_is_saved_by_the_save_node_of_the_server(
    tmp_path: Path, lacking: set[str], saver: str
) -> None:
    async with comfy_setup(tmp_path, dataclasses.replace(WAN, lacking=frozenset(lacking))) as setup:
        result = await setup.run(picture=True)
        assert saver in setup.comfy.executed_classes
    assert len(levels(result)) == 24


async def test_probe_reports_installed_and_missing_video_models(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path, WORDS) as setup:
        result = await probe(setup.client, setup.comfy.url)
        assert result.serves["text-to-film"] == "wan2.1_t2v_1.3B_fp16.safetensors"
        assert "text only" in result.missing["image-to-film"]
        setup.comfy.installed = dataclasses.replace(WAN, vae=())
        result = await probe(setup.client, setup.comfy.url)
        assert "its other files are missing: models/text_encoders" in result.missing["text-to-film"]
        with pytest.raises(EngineError, match="its other files are missing"):
            await setup.run()
        savers = frozenset({"SaveVideo", "SaveWEBM", "VHS_VideoCombine"})
        setup.comfy.installed = dataclasses.replace(WAN, lacking=savers)
        result = await probe(setup.client, setup.comfy.url)
        assert "cannot save videos" in result.missing["image-to-film"]


async def test_text_to_video_without_image_model_is_length_limited(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path, WORDS, task="text-to-film") as setup:
        assert len(levels(await setup.run(duration=2))) == 48
        assert setup.nodes("EmptyHunyuanLatentVideo")[0]["length"] == 33
        with pytest.raises(EngineError, match=r"at most 5\.06 seconds"):
            await setup.run(duration=6)


async def test_pinned_video_model_is_used_or_reported_missing(tmp_path: Path) -> None:
    installed = dataclasses.replace(
        WAN, checkpoints=LTX.checkpoints, text_encoders=(*WAN.text_encoders, *LTX.text_encoders)
    )
    async with comfy_setup(tmp_path, installed, checkpoint="ltx-video-2b-v0.9.5.safetensors") as setup:
        assert (await setup.run(num_inference_steps=2)).data["checkpoint"].startswith("ltx")
        setup.engine = ComfyVideoEngine(
            outside(setup.client), url=setup.comfy.url, checkpoint="gone.safetensors"
        )
        with pytest.raises(EngineError, match="does not have the model gone"):
            await setup.run()


async def test_canceled_video_is_interrupted_on_the_server(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path) as setup:
        setup.context.canceled = True
        with pytest.raises(Canceled):
            await setup.run()
        assert setup.comfy.called("/interrupt") + setup.comfy.called("/queue") > 0


@pytest.mark.skipif(not SCHEMAS, reason="ComfyUI's own schemas are not beside this checkout")
@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.stem)
@pytest.mark.parametrize("installed", [WAN, WORDS, LTX], ids=["wan22", "wan", "ltxv"])
def test_every_video_graph_fits_the_schemas_of_a_real_server(path: Path, installed: InstalledFiles) -> None:
    schemas: dict[str, Any] = json.loads(path.read_text("utf-8"))
    files = {
        ("UNETLoader", "unet_name"): installed.diffusion_models,
        ("CLIPLoader", "clip_name"): installed.text_encoders,
        ("VAELoader", "vae_name"): installed.vae,
        ("CheckpointLoaderSimple", "ckpt_name"): installed.checkpoints,
    }
    for (class_type, name), names in files.items():
        schemas[class_type]["input"]["required"][name][0] = list(names)
    content = video_graphs.read(schemas, capabilities.document()["videos"])
    (choice,) = content.choices
    wish = VideoSpec("waves", "", 7, 130, 24, choice.family.size_for((720, 1280)), 20, 5.0)
    pictured = msgspec.structs.replace(wish, image="a.png [temp]")
    for frame in (wish, pictured) if choice.family.pictured else (msgspec.structs.replace(wish, frames=40),):
        graph = video_graphs.build(schemas, choice, frame)
        verdict = comfyui_rules.validate(graph.nodes, schemas, lambda name: name == "a.png [temp]")
        assert (verdict.error, verdict.nodes) == (None, {})
        assert set(verdict.outputs) == set(graph.outputs)


def test_segments_are_whole_groups_and_cover_the_video() -> None:
    row = capabilities.document()["videos"][0]
    wan = video_graphs.VideoFamily(**{**row, "get": tuple(row["get"])})
    for frames in (2, 81, 121, 122, 480, 481):
        result = wan.segments(frames)
        assert all((count - 1) % 4 == 0 and count <= 121 for count in result)
        assert 0 <= sum(result) - len(result) + 1 - frames < 5
