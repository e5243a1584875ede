"""Complete graphs: a sampler's term becomes one child request."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from sixfold.core.workflows import estimate, slices
from sixfold.core.workflows.execution.execute import NodeError, unrunnable
from sixfold.core.workflows.ports import NodeChild, NodeFile
from sixfold.core.workflows.validate import validate
from sixfold.engines.audio import files as audio_files
from sixfold.engines.workflow_nodes import registry
from sixfold.errors import EngineUnavailable
from tests.harness import image_files
from tests.unit.engines.workflow_nodes.graph_fixtures import Graph, GraphFixture


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


SAMPLER = {
    "seed": 42,
    "steps": 12,
    "cfg": 5.0,
    "sampler_name": "euler",
    "scheduler": "normal",
    "denoise": 1.0,
}
PAINT: Graph = {
    "1": node("CheckpointLoaderSimple", ckpt_name="base.safetensors"),
    "2": node("CLIPTextEncode", text="a lighthouse at sunset", clip=["1", 1]),
    "3": node("CLIPTextEncode", text="people", clip=["1", 1]),
    "4": node("EmptyLatentImage", width=96, height=64, batch_size=1),
    "5": node(
        "KSampler", model=["1", 0], positive=["2", 0], negative=["3", 0], latent_image=["4", 0], **SAMPLER
    ),
    "6": node("VAEDecode", samples=["5", 0], vae=["1", 2]),
    "7": node("SaveImage", images=["6", 0], filename_prefix="made"),
}


@pytest.fixture
def graph_fixture(tmp_path: Path) -> GraphFixture:
    return GraphFixture(tmp_path)


def put(graph_fixture: GraphFixture, name: str = "example.png", size: tuple[int, int] = (80, 60)) -> None:
    ramp = np.linspace(0, 255, size[0] * size[1] * 3).reshape(size[1], size[0], 3).astype(np.uint8)
    ramp[size[1] // 3 : size[1] // 2] = 255 - ramp[size[1] // 3 : size[1] // 2]
    Image.fromarray(ramp).save(graph_fixture.folder / "input" / name)


def decoded_image(graph_fixture: GraphFixture, at: int = -1) -> Any:
    return np.asarray(Image.open(io.BytesIO(graph_fixture.outputs.outputs[at][2])).convert("RGB"))


def with_(graph: Graph, **nodes: dict[str, Any]) -> Graph:
    return {**copy.deepcopy(graph), **{name.lstrip("_"): each for name, each in nodes.items()}}


async def test_sampler_makes_one_child_prediction_of_the_size(graph_fixture: GraphFixture) -> None:
    result = await graph_fixture.run(PAINT)
    [(model, request)] = graph_fixture.children.requests
    assert model == "graph-image"
    assert request == {
        "prompt": "a lighthouse at sunset",
        "negative_prompt": "people",
        "width": 96,
        "height": 64,
        "steps": 12,
        "guidance": 5.0,
        "seed": 42,
    }
    assert decoded_image(graph_fixture).shape == (64, 96, 3)
    assert decoded_image(graph_fixture).std() > 10
    assert result.outputs["7"]["images"][0]["filename"].startswith("made")
    await graph_fixture.run(PAINT)
    assert len(graph_fixture.children.requests) == 1
    await graph_fixture.run(with_(PAINT, _7=node("SaveImage", images=["6", 0], filename_prefix="other")))
    assert len(graph_fixture.children.requests) == 1
    assert np.array_equal(decoded_image(graph_fixture, 0), decoded_image(graph_fixture, 1))


async def test_equal_graphs_give_equal_bytes(tmp_path: Path) -> None:
    results = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        graph_fixture = GraphFixture(tmp_path / name)
        await graph_fixture.run(PAINT)
        results.append(graph_fixture.outputs.outputs[0][2])
    assert results[0] == results[1]


async def test_batch_makes_a_child_prediction_for_each_image(graph_fixture: GraphFixture) -> None:
    await graph_fixture.run(with_(PAINT, _4=node("EmptyLatentImage", width=64, height=64, batch_size=2)))
    assert [request["seed"] for _, request in graph_fixture.children.requests] == [42, 43]
    assert len(graph_fixture.outputs.outputs) == 2


async def test_loras_controls_and_advanced_samplers_are_applied(graph_fixture: GraphFixture) -> None:
    put(graph_fixture)
    graph = with_(
        PAINT,
        l=node(
            "LoraLoader",
            model=["1", 0],
            clip=["1", 1],
            lora_name="thin",
            strength_model=0.5,
            strength_clip=1.0,
        ),
        i=node("LoadImage", image="example.png"),
        c=node("Canny", image=["i", 0], low_threshold=0.1, high_threshold=0.2),
        n=node("ControlNetLoader", control_net_name="lines"),
        a=node(
            "ControlNetApplyAdvanced",
            positive=["2", 0],
            negative=["3", 0],
            control_net=["n", 0],
            image=["c", 0],
            strength=1.0,
            start_percent=0.0,
            end_percent=1.0,
        ),
    )
    graph["5"]["inputs"] |= {"positive": ["a", 0], "negative": ["a", 1], "model": ["l", 0]}
    await graph_fixture.run(PAINT)
    await graph_fixture.run(graph)
    assert graph_fixture.children.requests[0][1] == graph_fixture.children.requests[1][1]
    plain, led = decoded_image(graph_fixture, 0).astype(int), decoded_image(graph_fixture, 1).astype(int)
    assert np.abs(plain - led).max() > 20


async def test_denoise_of_the_sampler_becomes_the_strength(graph_fixture: GraphFixture) -> None:
    put(graph_fixture)
    graph = with_(
        PAINT,
        i=node("LoadImage", image="input/example.png"),
        _4=node("VAEEncode", pixels=["i", 0], vae=["1", 2]),
    )
    graph["5"]["inputs"]["denoise"] = 0.55
    await graph_fixture.run(graph)
    [(model, request)] = graph_fixture.children.requests
    assert (model, request["strength"], request["style_prompt"]) == (
        "graph-restyle",
        0.55,
        "a lighthouse at sunset",
    )
    assert decoded_image(graph_fixture).shape == (60, 80, 3)
    graph["5"]["inputs"]["denoise"] = 1.0
    await graph_fixture.run(graph)
    assert graph_fixture.children.requests[1][0] == "graph-image"
    assert (
        graph_fixture.children.requests[1][1]["width"],
        graph_fixture.children.requests[1][1]["height"],
    ) == (
        160,
        120,
    )


async def test_pixels_outside_of_a_mask_are_unchanged(graph_fixture: GraphFixture) -> None:
    put(graph_fixture)
    graph = with_(
        PAINT,
        i=node("LoadImage", image="example.png"),
        s=node("SolidMask", value=0.0, width=80, height=60),
        _4=node("VAEEncodeForInpaint", pixels=["i", 0], vae=["1", 2], mask=["s", 0], grow_mask_by=6),
    )
    await graph_fixture.run(graph)
    source = np.asarray(Image.open(graph_fixture.folder / "input" / "example.png"))
    assert np.abs(decoded_image(graph_fixture).astype(int) - source).max() <= 1


async def test_encoded_image_without_sampling_is_unchanged(graph_fixture: GraphFixture) -> None:
    put(graph_fixture)
    graph = {
        "1": PAINT["1"],
        "i": node("LoadImage", image="example.png"),
        "4": node("VAEEncode", pixels=["i", 0], vae=["1", 2]),
        "6": node("VAEDecode", samples=["4", 0], vae=["1", 2]),
        "7": node("PreviewImage", images=["6", 0]),
    }
    await graph_fixture.run(graph)
    assert graph_fixture.children.requests == []
    assert graph_fixture.outputs.outputs[0][1].temporary
    assert np.array_equal(
        decoded_image(graph_fixture), np.asarray(Image.open(graph_fixture.folder / "input" / "example.png"))
    )


def film_graph(latent: dict[str, Any], save: dict[str, Any]) -> Graph:
    return {
        **{node_id: PAINT[node_id] for node_id in "123"},
        "c": node("LTXVConditioning", positive=["2", 0], negative=["3", 0], frame_rate=24.0),
        "l": latent,
        "s": node("LTXVScheduler", steps=9, max_shift=2.05, base_shift=0.95, stretch=True, terminal=0.1),
        "k": node("KSamplerSelect", sampler_name="euler"),
        "5": node(
            "SamplerCustom",
            model=["1", 0],
            add_noise=True,
            noise_seed=7,
            cfg=3.0,
            positive=["c", 0],
            negative=["c", 1],
            sampler=["k", 0],
            sigmas=["s", 0],
            latent_image=["l", 0],
        ),
        "6": node("VAEDecode", samples=["5", 0], vae=["1", 2]),
        "7": save,
    }


async def test_text_to_video_graph_gives_an_animation(graph_fixture: GraphFixture) -> None:
    latent = node("EmptyLTXVLatentVideo", width=128, height=96, length=9, batch_size=1)
    save = node(
        "SaveAnimatedWEBP",
        images=["6", 0],
        filename_prefix="f",
        fps=24.0,
        lossless=False,
        quality=80,
        method="fastest",
    )
    result = await graph_fixture.run(film_graph(latent, save))
    [(model, request)] = graph_fixture.children.requests
    expected = {"num_frames": 9, "frames_per_second": 24, "width": 128, "height": 96, "steps": 9, "seed": 7}
    assert model == "graph-film"
    assert {name: request[name] for name in expected} == expected
    moving: Any = Image.open(io.BytesIO(graph_fixture.outputs.outputs[0][2]))
    # A frame that equals the previous one only extends its duration.
    frame_count = 0
    for at in range(moving.n_frames):
        moving.seek(at)
        moving.load()
        frame_count += moving.info["duration"]
    assert (frame_count // 41, moving.size) == (9, (128, 96))
    assert moving.n_frames > 4
    assert result.outputs["7"]["animated"] == (True,)


async def test_image_to_video_graph_sends_the_first_frame(graph_fixture: GraphFixture) -> None:
    put(graph_fixture, size=(128, 96))
    latent = node(
        "LTXVImgToVideo",
        positive=["2", 0],
        negative=["3", 0],
        vae=["1", 2],
        image=["i", 0],
        width=128,
        height=96,
        length=9,
        batch_size=1,
        strength=1.0,
    )
    graph = film_graph(
        latent, node("SaveVideo", video=["v", 0], filename_prefix="f", format="auto", codec="auto")
    )
    graph["i"] = node("LoadImage", image="example.png")
    graph["v"] = node("CreateVideo", images=["6", 0], fps=24.0)
    graph["c"]["inputs"] |= {"positive": ["l", 0], "negative": ["l", 1]}
    graph["5"]["inputs"]["latent_image"] = ["l", 2]
    await graph_fixture.run(graph)
    [(model, request)] = graph_fixture.children.requests
    assert model == "graph-film"
    assert isinstance(request["image_url"], NodeFile)
    assert request["prompt"] == "a lighthouse at sunset"
    assert frames_of(graph_fixture.outputs.outputs[0][2]) == (9, 128, 96)


def frames_of(data: bytes) -> tuple[int, int, int]:
    with av.open(io.BytesIO(data), "r") as container:
        series = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return len(series), series[0].shape[1], series[0].shape[0]


async def test_video_graph_follows_a_control_video(graph_fixture: GraphFixture) -> None:
    put(graph_fixture, size=(64, 48))
    latent = node("EmptyLTXVLatentVideo", width=64, height=64, length=9, batch_size=1)
    await graph_fixture.run(
        film_graph(
            latent, node("SaveWEBM", images=["6", 0], filename_prefix="w", codec="vp9", fps=16.0, crf=32.0)
        )
    )
    (graph_fixture.folder / "input" / "walk.mp4").write_bytes(graph_fixture.outputs.outputs[0][2])
    vace = node(
        "WanVaceToVideo",
        positive=["2", 0],
        negative=["3", 0],
        vae=["v", 0],
        width=64,
        height=64,
        length=9,
        batch_size=1,
        strength=1.0,
        control_video=["e", 0],
        reference_image=["r", 0],
    )
    sampler = {
        **SAMPLER,
        "model": ["m", 0],
        "positive": ["w", 0],
        "negative": ["w", 1],
        "latent_image": ["w", 2],
    }
    graph: Graph = {
        "u": node("UNETLoader", unet_name="w", weight_dtype="default"),
        "1": node("CLIPLoader", clip_name="t", type="wan", device="default"),
        "v": node("VAELoader", vae_name="v"),
        "m": node("ModelSamplingSD3", model=["u", 0], shift=8.0),
        "2": node("CLIPTextEncode", text="autumn forest", clip=["1", 0]),
        "3": node("CLIPTextEncode", text="", clip=["1", 0]),
        "i": node("LoadImage", image="example.png"),
        "f": node("LoadVideo", file="walk.mp4"),
        "g": node("GetVideoComponents", video=["f", 0]),
        "r": node("ImageScale", image=["i", 0], upscale_method="lanczos", width=64, height=64, crop="center"),
        "q": node("ImageScale", image=["g", 0], upscale_method="area", width=64, height=64, crop="disabled"),
        "e": node("Canny", image=["q", 0], low_threshold=0.1, high_threshold=0.3),
        "w": vace,
        "5": node("KSampler", **sampler),
        "t": node("TrimVideoLatent", samples=["5", 0], trim_amount=["w", 3]),
        "6": node("VAEDecode", samples=["t", 0], vae=["v", 0]),
        "c": node("CreateVideo", images=["6", 0], fps=["g", 2]),
        "7": node("SaveVideo", video=["c", 0], filename_prefix="v2v", format="auto", codec="auto"),
    }
    assert len(graph) == 18
    await graph_fixture.run(graph)
    assert graph_fixture.children.requests[-1][0] == "graph-film"
    assert graph_fixture.children.requests[-1][1]["prompt"] == "autumn forest"
    assert frames_of(graph_fixture.outputs.outputs[-1][2]) == (9, 64, 64)


async def test_a_template_runs_inside_a_graph(graph_fixture: GraphFixture) -> None:
    put(graph_fixture)
    graph_fixture.children.functions["depth-fx"] = lambda inputs: NodeChild(
        (inputs["image"],), {"strength": inputs["strength"]}
    )
    graph = {
        "1": node("LoadImage", image="example.png"),
        "2": node("SixfoldTemplate", template="template:depth-fx", input='{"strength": 0.7}', image=["1", 0]),
        "3": node("SaveImage", images=["2", 0], filename_prefix="x"),
        "4": node("PreviewAny", source=["2", 3]),
    }
    result = await graph_fixture.run(graph)
    assert result.outputs["4"] == {"text": ('{"strength": 0.7}',)}
    assert np.array_equal(
        decoded_image(graph_fixture), np.asarray(Image.open(graph_fixture.folder / "input" / "example.png"))
    )


async def test_upscale_node_uses_the_upscale_model(graph_fixture: GraphFixture) -> None:
    put(graph_fixture)

    def enlarge(inputs: Mapping[str, Any]) -> NodeChild:
        result = Image.open(inputs["image"].path).resize((80 * inputs["scale"], 60 * inputs["scale"]))
        return NodeChild((graph_fixture.children.file(image_files.encode(result), "image/png"),))

    graph_fixture.children.functions["upscaler"] = enlarge
    graph = {
        "1": node("LoadImage", image="example.png"),
        "2": node("UpscaleModelLoader", model_name="4x-sharp.pth"),
        "3": node("ImageUpscaleWithModel", upscale_model=["2", 0], image=["1", 0]),
        "4": node("SaveImage", images=["3", 0], filename_prefix="x"),
    }
    await graph_fixture.run(graph)
    assert decoded_image(graph_fixture).shape == (240, 320, 3)


async def test_speech_nodes_transcribe_and_synthesize(graph_fixture: GraphFixture, tmp_path: Path) -> None:
    tone = np.sin(np.arange(24_000) / 20)[None].repeat(2, 0).astype(np.float32) * 0.3
    path = graph_fixture.folder / "input" / "sample.wav"
    audio_files.write(tone, "wav", path)
    graph_fixture.children.functions["stt"] = lambda inputs: NodeChild(data={"text": "hello"})
    graph_fixture.children.functions["tts-a"] = lambda inputs: NodeChild(
        (graph_fixture.children.file(path.read_bytes(), "audio/wav"),)
    )
    graph = {
        "1": node("LoadAudio", audio="input/sample.wav"),
        "2": node("SixfoldRecognizerLoader", model="default"),
        "3": node("SixfoldTranscribe", recognizer=["2", 0], audio=["1", 0], language=""),
        "4": node("SixfoldSaveText", text=["3", 0], filename_prefix="text"),
        "5": node("PreviewAny", source=["4", 0]),
    }
    assert (await graph_fixture.run(graph)).outputs["5"] == {"text": ("hello",)}
    assert graph_fixture.outputs.outputs[0][2] == b"hello"
    speak: Graph = {
        "1": node("LoadAudio", audio=""),
        "2": node("SixfoldCloneSpeech", text="Good day", sample_text="", seed=1, voice_sample=["1", 0]),
        "3": node("SaveAudioMP3", audio=["2", 0], filename_prefix="a", quality="V0"),
    }
    await graph_fixture.run(speak)
    assert "voice_sample" not in graph_fixture.children.requests[-1][1]
    mp3 = tmp_path / "a.mp3"
    mp3.write_bytes(graph_fixture.outputs.outputs[-1][2])
    assert audio_files.read(mp3, 10).shape[1] == pytest.approx(24_000, abs=3000)
    speak["2"]["inputs"]["sample_text"] = "What the sample says"
    with pytest.raises(EngineUnavailable, match="pip install chatterbox-tts"):
        slices.complete(estimate.child_request_steps(validate(speak, registry.registry())))


async def test_model_in_3d_is_stored_unchanged(graph_fixture: GraphFixture) -> None:
    graph_fixture.children.functions["text-to-3d"] = lambda inputs: NodeChild(
        (graph_fixture.children.file(b"glTF", "model/gltf-binary"),)
    )
    result = await graph_fixture.run({"1": node("SixfoldTextTo3D", prompt="a chair", model="text-to-3d")})
    assert result.outputs["1"]["3d"][0]["filename"]
    assert graph_fixture.outputs.outputs[0][2] == b"glTF"


async def test_image_is_sent_over_the_websocket_without_a_file(graph_fixture: GraphFixture) -> None:
    graph = {
        "1": node("EmptyImage", width=4, height=3, batch_size=2, color=255),
        "2": node("SaveImageWebsocket", images=["1", 0]),
    }
    await graph_fixture.run(graph)
    sent = [event.binary for event in graph_fixture.events if event.type == "image"]
    assert [Image.open(io.BytesIO(data)).size for data in sent] == [(4, 3), (4, 3)]
    assert graph_fixture.outputs.outputs == []


async def test_unreadable_image_file_is_named_in_the_error(graph_fixture: GraphFixture) -> None:
    (graph_fixture.folder / "input" / "x.png").write_text("text")
    with pytest.raises(NodeError, match=r"^LoadImage \(node 1\): "):
        await graph_fixture.run(
            {"1": node("LoadImage", image="x.png"), "2": node("PreviewImage", images=["1", 0])}
        )


def test_child_predictions_are_estimated_before_the_run() -> None:
    result = slices.complete(estimate.child_request_steps(validate(PAINT, registry.registry())))
    assert [(node_id, order.model) for node_id, order in result] == [("6", "graph-image")]


def test_every_class_accepts_the_inputs_of_its_schema() -> None:
    known = [spec for spec in registry.registry() if spec.run is not None]
    assert len(known) >= 340
    assert json.dumps([spec.class_type for spec in known])
    assert unrunnable(validate({"1": node("RegexMatch"), **PAINT}, registry.registry())) == ()
