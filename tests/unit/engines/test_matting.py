"""Background removal: accuracy, confidence, soft edges, and model files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import EngineError, Task, UnusableInput
from sixfold.engines.image import face_detection, saliency
from sixfold.engines.image.face_detection import DetectedFace
from sixfold.engines.image.matting import background, edges, person_prior, segmentation
from sixfold.engines.image.matting.engine import MattingEngine
from tests.corpora import composites
from tests.unit.engines import onnx_model
from tests.unit.engines.engine_runs import RunContext


def overlap(alpha: Any, truth: Any) -> float:
    return float(np.minimum(alpha, truth).sum() / np.maximum(alpha, truth).sum())


def save(folder: Path, rgb: Any) -> Path:
    Image.fromarray(rgb).save(folder / "in.png")
    return folder / "in.png"


def test_body_is_found_under_a_face_without_contrast() -> None:
    image = pytest.importorskip("skimage.data").astronaut()
    rng = np.random.default_rng(3)
    coat = np.zeros((512, 512), np.uint8)
    cv2.fillPoly(coat, [np.array([(170, 190), (270, 190), (370, 250), (390, 512), (50, 512), (70, 250)])], 1)
    gray = np.where(coat[..., None] > 0, 176, 190) + rng.normal(0, 3, image.shape)
    image[190:] = np.clip(gray, 0, 255).astype(np.uint8)[190:]
    alpha, _ = segmentation.alpha(image)
    assert alpha[300:, 170:270].mean() > 0.9
    assert alpha[300:, 440:].mean() < 0.1


def test_pixels_far_from_a_body_are_less_certain() -> None:
    belief = np.full((200, 300), 0.8, np.float32)
    response = person_prior.apply_prior(belief, [DetectedFace(130, 40, 180, 90)])
    # This pixel is below the chin.
    assert response[190, 155] > 0.85
    assert response[20, 5] < 0.4
    # This pixel is an arm's length from the face.
    assert response[150, 95] == pytest.approx(0.8, abs=0.05)
    assert person_prior.apply_prior(belief, [DetectedFace(10, 10, 25, 25)]) is belief


@pytest.mark.parametrize(
    ("stratum", "least"),
    [
        pytest.param("plain", 0.93, marks=pytest.mark.nightly),
        ("textured", 0.9),
        pytest.param("shadow", 0.87, marks=pytest.mark.nightly),
    ],
)
def test_subjects_are_found_on_every_kind_of_background(stratum: composites.Stratum, least: float) -> None:
    results = [composites.composite(seed, stratum) for seed in range(400, 405)]
    overlaps = [overlap(segmentation.alpha(known.rgb)[0], known.alpha) for known in results]
    assert np.mean(overlaps) >= least, overlaps


def test_equal_images_give_equal_masks() -> None:
    rgb = composites.composite(1, "textured").rgb
    assert np.array_equal(segmentation.alpha(rgb)[0], segmentation.alpha(rgb)[0])


@pytest.mark.nightly
def test_confidence_is_higher_for_plain_backgrounds() -> None:
    plain = [segmentation.alpha(composites.composite(seed, "plain").rgb)[1] for seed in range(420, 423)]
    clutter = [segmentation.alpha(composites.composite(seed, "cluttered").rgb)[1] for seed in range(420, 423)]
    assert min(plain) > 0.8
    assert np.mean(clutter) < np.mean(plain) - 0.05


def test_image_without_a_subject_has_low_confidence() -> None:
    alpha, confidence = segmentation.alpha(np.full((90, 120, 3), 200, np.uint8))
    assert alpha.shape == (90, 120)
    assert confidence < 0.85


def landscape(seed: int) -> Any:
    """A sky with clouds, and ridges of hills one behind the other, without a subject."""
    rng = np.random.default_rng(seed)
    height, width = 240, 320
    down = np.linspace(0, 1, height)[:, None]
    colors = rng.uniform(40, 220, (5, 3))
    image = colors[0] * (1 - down[..., None]) + colors[1] * down[..., None] + np.zeros((height, width, 1))
    clouds = cv2.GaussianBlur(rng.normal(0, 1, (height, width)), (0, 0), 18)
    image += 40 * np.clip(clouds / clouds.std(), 0, 2)[..., None]
    for number in range(3):
        ridge = cv2.GaussianBlur(rng.normal(0, 1, (1, width)), (0, 0), 20)[0]
        line = (0.5 + 0.15 * number) * height + 18 * ridge / ridge.std()
        under = np.arange(height)[:, None] > line[None]
        image[under] = colors[2 + number]
    return np.clip(image + rng.normal(0, 6, image.shape), 0, 255).astype(np.uint8)


@pytest.mark.nightly
def test_landscape_without_a_subject_has_low_confidence(tmp_path: Path) -> None:
    messages = [segmentation.alpha(landscape(seed))[1] for seed in range(6)]
    assert np.mean(messages) < 0.5, messages
    assert max(messages) < 0.85, messages
    context = RunContext(tmp_path)
    least = save(tmp_path, landscape(int(np.argmin(messages))))
    MattingEngine().run(Task("t", "m", {}, {"image_url": least}), context)
    assert context.lines[0].startswith("no subject stands out")


def test_hair_has_soft_edges_without_background_color() -> None:
    known = next(
        each
        for each in (composites.composite(seed, "plain") for seed in range(500, 540))
        if each.name == "fur"
    )
    alpha, _ = segmentation.alpha(known.rgb)
    band = (known.alpha > 0.15) & (known.alpha < 0.85)
    assert ((alpha > 0.1) & (alpha < 0.9))[band].mean() > 0.4
    clean = edges.decontaminate(known.rgb, alpha)
    edge_pixels = band & (alpha > 0.1)
    before = np.abs(known.rgb[edge_pixels] - known.subject[edge_pixels] * 255).mean()
    after = np.abs(clean[edge_pixels] - known.subject[edge_pixels] * 255).mean()
    assert after < 0.6 * before


def test_shadow_is_part_of_the_background() -> None:
    rgb = np.full((200, 260, 3), 215, np.uint8)
    shadow = np.zeros((200, 260), np.float32)
    cv2.ellipse(shadow, (150, 160), (70, 16), 0, 0, 360, 1.0, -1)
    shadow = cv2.GaussianBlur(shadow, (0, 0), 7)
    rgb = np.rint(rgb * (1 - 0.35 * shadow[..., None])).astype(np.uint8)
    cv2.circle(rgb, (120, 100), 55, (190, 40, 30), -1)
    rgb = np.clip(rgb + np.random.default_rng(1).normal(0, 1.5, rgb.shape), 0, 255).astype(np.uint8)
    alpha, _ = segmentation.alpha(rgb)
    assert alpha[100, 120] == 1
    assert alpha[160, 205] < 0.1
    assert background.fit_background(rgb.astype(np.float32) / 255).plain


def test_hint_improves_the_mask_of_a_cluttered_image() -> None:
    known = composites.composite(5009, "cluttered")
    alone = overlap(segmentation.alpha(known.rgb)[0], known.alpha)
    hinted = overlap(segmentation.alpha(known.rgb, np.roll(known.alpha, 3, 1))[0], known.alpha)
    assert hinted > alone


@pytest.mark.parametrize("size", [(1, 1), (1, 400), (400, 1), (9, 9), (17, 900)])
def test_image_of_any_shape_gets_a_mask(size: tuple[int, int]) -> None:
    rgb = np.random.default_rng(1).integers(0, 255, (*size, 3), np.uint8)
    alpha, confidence = segmentation.alpha(rgb)
    assert alpha.shape == size
    assert 0 <= confidence <= 1
    assert saliency.saliency(rgb).shape == size
    assert isinstance(face_detection.find(rgb), tuple)


def test_engine_returns_a_png_and_warns_of_low_confidence(tmp_path: Path) -> None:
    known = composites.composite(5009, "cluttered")
    context = RunContext(tmp_path)
    result = MattingEngine().run(Task("t", "x", {}, {"image_url": save(tmp_path, known.rgb)}), context)
    (artifact,) = result.artifacts
    assert (artifact.content_type, dict(artifact.info)) == ("image/png", {"width": 448, "height": 384})
    assert result.data["confidence"] < 0.85
    assert result.quality == "preview"
    assert "confidence" in context.lines[0]
    image = cv2.imdecode(np.frombuffer(artifact.data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert image is not None
    assert image.shape == (384, 448, 4)
    assert not image[image[..., 3] == 0].any()


def test_engine_reports_full_when_sure_and_refuses_non_images(tmp_path: Path) -> None:
    known = composites.composite(3, "plain")
    context = RunContext(tmp_path)
    result = MattingEngine().run(Task("t", "x", {}, {"image": save(tmp_path, known.rgb)}), context)
    assert (result.quality, context.lines) == ("full", [])
    (tmp_path / "x").write_bytes(b"no picture")
    with pytest.raises(UnusableInput):
        MattingEngine().run(Task("t", "x", {}, {"image": tmp_path / "x"}), context)
    with pytest.raises(EngineError):
        MattingEngine().run(Task("t", "x", {}), context)


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (1, 50)])
def test_a_tiny_translucent_image_keeps_at_most_its_alpha(tmp_path: Path, size: tuple[int, int]) -> None:
    path = save(tmp_path, np.full((*size, 4), (0, 255, 0, 127), np.uint8))
    result = MattingEngine().run(Task("t", "x", {}, {"image": path}), RunContext(tmp_path))
    image = cv2.imdecode(np.frombuffer(result.artifacts[0].data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert image is not None
    assert image.shape == (*size, 4)
    assert image[..., 3].max() <= 127


# -- models ------------------------------------------------------------------------------------------


@pytest.fixture
def onnx() -> Any:
    """The engine's module, where onnxruntime is installed."""
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    from sixfold.engines.image.matting import onnx as module  # noqa: PLC0415 - needs the package

    return module


RED = np.zeros((60, 80, 3), np.uint8)
RED[15:45, 20:60, 0] = 255


@pytest.mark.parametrize(
    ("name", "weights", "bias"),
    [("isnet-general-use", (1, 0, 0), 0), ("birefnet-general", (4, 0, 0), -4), ("u2net", (3, 0, 0), 1)],
)
def test_model_name_selects_its_preprocessing(
    onnx: Any, tmp_path: Path, name: str, weights: tuple[float, float, float], bias: float
) -> None:
    path = onnx_model.write(tmp_path / f"{name}.onnx", weights, bias)
    engine = onnx.OnnxMattingEngine(source=str(path))
    alpha, confidence = engine.alpha(RED)
    assert (alpha.shape, engine.version) == ((60, 80), f"5/{name}")
    assert alpha[30, 40] > 0.9
    assert alpha[3, 3] < 0.1
    assert 0.5 < confidence <= 1


def test_model_with_dynamic_size_uses_the_size_of_its_kind(onnx: Any, tmp_path: Path) -> None:
    path = onnx_model.write(tmp_path / "any.onnx", (1, 0, 0), side="n")
    assert onnx.OnnxMattingEngine(source=str(path), side=48)._size == (48, 48)
    assert onnx.OnnxMattingEngine(source=str(path), like="u2net")._size == (320, 320)


def test_model_runs_a_complete_task(onnx: Any, tmp_path: Path) -> None:
    onnx_model.write(tmp_path / "isnet.onnx", (1, 0, 0))
    engine = onnx.OnnxMattingEngine(weights=str(tmp_path))
    task = Task("t", "remove-background", {}, {"image_url": save(tmp_path, RED)})
    result = engine.run(task, RunContext(tmp_path))
    assert (result.quality, result.artifacts[0].content_type) == ("full", "image/png")


def test_invalid_onnx_model_is_named_in_the_error(onnx: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(EngineError, match=r"bad\.onnx is not a valid ONNX model"):
        onnx.OnnxMattingEngine(source=str(tmp_path / "bad.onnx"))
    with pytest.raises(EngineError, match="ONNX model not found"):
        onnx.OnnxMattingEngine(source=str(tmp_path / "none.onnx"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(EngineError, match="ONNX model not found"):
        onnx.OnnxMattingEngine(weights=str(tmp_path / "empty"))
