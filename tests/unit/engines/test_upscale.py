"""Upscaling: closer to the original than interpolation, faithful, seamless, and by a model."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

import cv2
import numpy as np
import pytest

from sixfold.core.catalog.engines import EngineError, UnusableInput
from sixfold.engines.image import onnx_session
from sixfold.engines.image.upscale import engine as upscale
from sixfold.engines.image.upscale import network, onnx, restore
from sixfold.engines.image.upscale.engine import UpscaleEngine
from tests.unit.engines import engine_runs, onnx_tiny


@pytest.mark.parametrize(("scale", "gain"), [(2, 0.4), (4, 0.3)])
@pytest.mark.parametrize("model", ["general", "anime"])
def test_upscale_is_closer_to_the_original_than_bicubic(
    tmp_path: Path, scale: int, gain: float, model: str
) -> None:
    truth = engine_runs.scenery()
    height, width = truth.shape[:2]
    small = cv2.resize(truth, (width // scale, height // scale), interpolation=cv2.INTER_AREA)
    path = engine_runs.saved(tmp_path / "in.png", small)
    artifact, result, _ = engine_runs.run(
        UpscaleEngine(), tmp_path, {"scale": scale, "model": model}, image=path
    )
    large = engine_runs.pixels(artifact)
    stretched = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    assert (large.shape, result.quality) == (truth.shape, "preview")
    assert dict(artifact.info) == {"width": width, "height": height}
    assert engine_runs.psnr(large, truth) > engine_runs.psnr(stretched, truth) + gain
    small_again = cv2.resize(large, small.shape[1::-1], interpolation=cv2.INTER_AREA)
    assert engine_runs.psnr(small_again, small) > engine_runs.psnr(
        cv2.resize(stretched, small.shape[1::-1], interpolation=cv2.INTER_AREA), small
    )


def test_general_and_anime_differ_and_are_deterministic(tmp_path: Path) -> None:
    path = engine_runs.saved(tmp_path / "in.png", engine_runs.scenery((48, 64)))
    result = {
        name: [
            engine_runs.run(UpscaleEngine(), tmp_path, {"scale": 2, "model": name}, image=path)[0].data
            for _ in range(2)
        ]
        for name in ("general", "anime")
    }
    assert all(first == second for first, second in result.values())
    assert result["general"][0] != result["anime"][0]


def test_tiles_leave_no_seam() -> None:
    rgb = engine_runs.scenery((90, 120))

    full_image, pieced = (
        upscale.enlarge_tiles(rgb, 2, network.enlarge, engine_runs.RunContext(Path()), side).astype(int)
        for side in (400, 40)
    )
    # Away from the image's border, where the tiles mirror, the network sees the same pixels.
    inner = np.s_[40:-40, 40:-40]
    assert np.array_equal(full_image[inner], pieced[inner])
    assert np.abs(full_image - pieced).max() <= 24


def test_network_gives_the_same_bytes_on_any_number_of_threads() -> None:
    controller = pytest.importorskip("threadpoolctl").threadpool_limits
    small = engine_runs.scenery((61, 83)).astype(np.float32) / 255
    results = []
    for threads in (1, 2, 3):
        with controller(limits=threads):
            results.append(network.enlarge(small, 4).tobytes())
    assert len(set(results)) == 1
    # float32 represents each sum of integers exactly, so the order of additions has no effect.
    for name, layer in network.layers().items():
        most = 128 if name == "first" else network.MAX_LEVEL
        assert (np.abs(layer.matrix).sum(0) * most + np.abs(layer.bias)).max() < 2**24


@pytest.mark.parametrize("scale", [2, 4])
def test_network_as_onnx_gives_the_same_bytes(tmp_path: Path, scale: int) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    model = onnx_session.OnnxSession(str(onnx_tiny.upscaler(tmp_path / "network.onnx", scale)))
    small = engine_runs.scenery((40, 56))
    levels = small.astype(np.float32)
    padded = np.pad(levels - 128, [(network.REACH,) * 2] * 2 + [(0, 0)], mode="symmetric")
    added = model.run(onnx_session.to_batch(padded))[0].transpose(1, 2, 0)
    rim = network.REACH * scale
    assert np.array_equal(network.correction(levels, scale), added[rim:-rim, rim:-rim])
    assert np.abs(added).max() > 5


def test_network_file_is_the_one_that_its_data_sheet_describes() -> None:
    data = Path(network.__file__).with_name("network.npz").read_bytes()
    sheet, licenses = (
        Path(f"docs/reference/{name}.md").read_text("utf-8") for name in ("picture-templates", "licenses")
    )
    assert hashlib.sha256(data).hexdigest() in sheet
    assert len(data) < 1_000_000
    for group in tomllib.loads(Path("tools/train_upscaler.toml").read_text("utf-8")).values():
        for name, credit in group["photographs"].items():
            assert f"| {name} | {credit}" in licenses
            assert credit.rpartition(", ")[2].startswith(("CC0", "CC-BY-4", "CC-BY-2")), name


@pytest.mark.parametrize("name", ["astronaut", "coffee", "rocket"])
def test_photographs_and_text_are_closer_than_without_a_network(name: str) -> None:
    truth = np.array(getattr(pytest.importorskip("skimage.data"), name)())[40:296, 150:406]
    cv2.putText(truth, "Sixfold 27", (20, 60), cv2.FONT_HERSHEY_SIMPLEX, 1.2, (250, 250, 250), 2, cv2.LINE_AA)
    small = cv2.resize(truth, (64, 64), interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    ours, before = (method.enlarge(small, 4) * 255 for method in (network, restore))
    assert engine_runs.psnr(ours, truth) > engine_runs.psnr(before, truth) + 0.2


def test_transparency_is_kept_and_odd_sizes_are_supported(tmp_path: Path) -> None:
    rgba = np.dstack([engine_runs.scenery((33, 57)), np.zeros((33, 57), np.uint8)])
    rgba[:, :20, 3] = 255
    path = engine_runs.saved(tmp_path / "in.png", rgba)
    large = engine_runs.pixels(engine_runs.run(UpscaleEngine(), tmp_path, {"scale": 4}, image=path)[0])
    assert large.shape == (132, 228, 4)
    assert large[60, 30, 3] == 255
    assert large[60, 200, 3] == 0
    pixel = engine_runs.saved(tmp_path / "one.png", np.full((1, 1, 3), 90, np.uint8))
    tiny = engine_runs.pixels(engine_runs.run(UpscaleEngine(), tmp_path, {"scale": 4}, image=pixel)[0])
    assert tiny.shape == (4, 4, 3)
    assert np.abs(tiny.astype(int) - 90).max() <= 1


def test_too_large_output_is_refused_and_faces_need_weights(tmp_path: Path) -> None:
    path = engine_runs.saved(tmp_path / "in.png", np.zeros((2000, 1600, 3), np.uint8))
    with pytest.raises(UnusableInput, match="at most 48 megapixels"):
        engine_runs.run(UpscaleEngine(), tmp_path, {"scale": 4}, image=path)
    with pytest.raises(EngineError, match="weights"):
        engine_runs.run(UpscaleEngine(), tmp_path, {"face_enhance": True}, image=path)


@pytest.mark.parametrize(("own", "scale"), [(4, 4), (4, 2), (2, 4)])
def test_upscale_factor_is_independent_of_the_model_scale(tmp_path: Path, own: int, scale: int) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    onnx_tiny.enlarger(tmp_path / "tiny.onnx", own)
    rgb = engine_runs.scenery((45, 70))
    path = engine_runs.saved(tmp_path / "in.png", rgb)
    engine = onnx.OnnxUpscaleEngine(weights=str(tmp_path))
    artifact, result, _ = engine_runs.run(engine, tmp_path, {"scale": scale}, image=path)
    large = engine_runs.pixels(artifact)
    assert (large.shape, result.quality, engine.version) == ((45 * scale, 70 * scale, 3), "full", "1/tiny")
    small = cv2.resize(large, (70, 45), interpolation=cv2.INTER_AREA)
    assert np.abs(small.astype(int) - rgb).max() <= (1 if own >= scale else 60)


def test_fixed_size_model_is_tiled_and_drawings_have_their_own(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    fixed = onnx_tiny.enlarger(tmp_path / "fixed.onnx", 2, side=64)
    drawn = onnx_tiny.enlarger(tmp_path / "drawn.onnx", 4)
    engine = onnx.OnnxUpscaleEngine(source=str(fixed), anime=str(drawn))
    rgb = engine_runs.scenery((50, 70))
    path = engine_runs.saved(tmp_path / "in.png", rgb)
    large = engine_runs.pixels(engine_runs.run(engine, tmp_path, {"scale": 2}, image=path)[0])
    assert np.array_equal(large, rgb.repeat(2, 0).repeat(2, 1))
    assert engine.version == "1/fixed/drawn"
    little = onnx.OnnxUpscaleEngine(source=str(onnx_tiny.enlarger(tmp_path / "little.onnx", 2, side=16)))
    with pytest.raises(EngineError, match="must be larger than 32 pixels"):
        engine_runs.run(little, tmp_path, {"scale": 2}, image=path)


def test_model_that_does_not_upscale_is_named_in_the_error(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    path = engine_runs.saved(tmp_path / "in.png", engine_runs.scenery((40, 40)))
    other = onnx_tiny.filler(tmp_path / "filler.onnx", side=64)
    with pytest.raises(EngineError, match="filler has 2 inputs"):
        engine_runs.run(onnx.OnnxUpscaleEngine(source=str(other)), tmp_path, {"scale": 2}, image=path)
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(EngineError, match=r"bad\.onnx is not a valid ONNX model"):
        onnx.OnnxUpscaleEngine(source=str(tmp_path / "bad.onnx"))
    with pytest.raises(EngineError, match="ONNX model not found: none"):
        onnx.OnnxUpscaleEngine(source=str(tmp_path / "none.onnx"))
