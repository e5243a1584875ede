"""Images by tiny random pipelines, through the real code path."""

from __future__ import annotations

import hashlib
import io
import itertools
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sixfold import settings
from sixfold.core.catalog.engines import Canceled, EngineError, Result, UnusableInput
from tests.unit.engines.diffusers.conftest import (
    Listener,
    Weights,
    job,
    log_of,
    max_difference,
    open_engine,
    pixels,
    task,
)

pytestmark = pytest.mark.weights

# Of 255 levels: another batch size changes the order of floating-point additions.
ALMOST = 2


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """An image with an edge and a gradient, 96 x 64."""
    ramp = np.tile(np.linspace(0, 255, 96, dtype=np.uint8), (64, 1))
    board = np.dstack([ramp, ramp[:, ::-1], np.full_like(ramp, 90)])
    board[16:48, 24:60] = (250, 240, 30)
    file = tmp_path / "photo.png"
    Image.fromarray(board).save(file)
    return file


def paint(engine: Any, **inputs: Any) -> np.ndarray[Any, Any]:
    return pixels(engine.run(task(**inputs), Listener()))


# -- one image -------------------------------------------------------------------------------------


def test_image_has_the_requested_size_and_logs_its_settings(engine: Any) -> None:
    listener = Listener()
    result = engine.run(task(width=100, height=68), listener)
    assert pixels(result).shape == (68, 100, 3)
    assert result.quality == "full"
    assert result.artifacts[0].info == {"width": 100, "height": 68}
    assert result.data == {"pipeline": "StableDiffusionPipeline", "weights": "sd", "steps": 2, "seeds": [7]}
    assert listener.lines == [
        "StableDiffusionPipeline sd on cpu in float32: 2 steps, guidance 7.5, 104 x 72 for 100 x 68"
    ]


def test_progress_increases_to_one(engine: Any) -> None:
    listener = Listener()
    engine.run(task(steps=4, num_images=3), listener)
    assert listener.fractions == sorted(listener.fractions)
    assert listener.fractions[-1] == 1.0
    assert len(set(listener.fractions)) >= 5


@pytest.mark.parametrize("size", [(64, 64), (65, 64), (96, 71), (127, 128)])
def test_sizes_between_multiples_are_exact(engine: Any, size: tuple[int, int]) -> None:
    assert paint(engine, width=size[0], height=size[1], steps=1).shape == (size[1], size[0], 3)


def test_image_above_the_model_size_is_sampled_within_it(engine: Any) -> None:
    listener = Listener()
    result = engine.run(task(width=320, height=160, steps=1), listener)
    assert pixels(result).shape == (160, 320, 3)
    output = listener.lines[0].rpartition("guidance 7.5, ")[2].split(" for ")[0]
    width, height = (int(side) for side in output.split(" x "))
    assert width * height < 1.3 * 2.25 * 64 * 64


@pytest.mark.parametrize("form", ["png", "webp", "jpeg", "jpg"])
def test_image_has_the_requested_format(engine: Any, form: str) -> None:
    result = engine.run(task(format=form, quality=70, steps=1), Listener())
    assert result.artifacts[0].content_type == f"image/{form.replace('jpg', 'jpeg')}"
    assert pixels(result).shape == (64, 64, 3)


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({"width": 8}, "width must be from 64 to 4096."),
        ({"steps": 1000}, "steps must be from 1 to 150."),
        ({"num_images": 9}, "num_images must be from 1 to 8."),
        ({"format": "bmp"}, "format must be one of"),
        ({"loras": "x"}, "loras"),
        ({"loras": ["../../secret.safetensors"]}, "without a path"),
        ({"loras": ["none.safetensors"]}, "LoRA none.safetensors not found on this machine."),
    ],
)
def test_unsupported_inputs_are_refused_in_a_sentence(
    engine: Any, inputs: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(EngineError, match=sentence):
        engine.run(task(**inputs), Listener())


# -- what decides ----------------------------------------------------------------------------------


def test_image_depends_on_the_seed(engine: Any) -> None:
    first = paint(engine, seed=11)
    assert max_difference(first, paint(engine, seed=11)) == 0
    assert max_difference(first, paint(engine, seed=12)) > 20


def test_prompt_and_negative_prompt_change_the_image(engine: Any) -> None:
    first = paint(engine)
    assert max_difference(first, paint(engine, prompt="two owls at night")) > 0
    assert max_difference(first, paint(engine, negative_prompt="snow")) > 0


def test_several_images_differ_and_first_equals_single(engine: Any) -> None:
    result = engine.run(task(num_images=3), Listener())
    results = [pixels(artifact) for artifact in result.artifacts]
    assert len(set(result.data["seeds"])) == 3
    assert max_difference(results[0], paint(engine)) <= ALMOST
    assert all(max_difference(first, second) > 20 for first, second in itertools.combinations(results, 2))


OTHER_PROCESS = """
import sys, hashlib
from tests.unit.engines.diffusers.conftest import Listener, task
from sixfold.engines.image.diffusers.engine import DiffusersEngine
engine = DiffusersEngine(weights=sys.argv[1], source="sd", steps=2, threads=1, dtype="float32")
print(hashlib.sha256(engine.run(task(), Listener()).artifacts[0].data).hexdigest())
"""


def test_image_is_equal_in_another_process(engine: Any, weights: Weights) -> None:
    here = hashlib.sha256(engine.run(task(), Listener()).artifacts[0].data).hexdigest()
    there = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS, str(weights.folder)],
        capture_output=True,
        text=True,
        check=True,
        env=settings.worker_environment(),
    )
    assert there.stdout.split()[-1] == here


def test_long_prompt_is_encoded_completely(engine: Any) -> None:
    long = "a fox, " * 40
    listener = Listener()
    first = pixels(engine.run(task(prompt=long + "in snow"), listener))
    assert "encoded in 3 chunks" in listener.lines[1]
    assert max_difference(first, paint(engine, prompt=long + "on sand")) > 0


def test_word_longer_than_the_window_is_truncated(engine: Any) -> None:
    assert paint(engine, prompt="x" * 400, steps=1).shape == (64, 64, 3)


@pytest.mark.parametrize(("source", "steps"), [("flux", 4), ("z-image", 9)])
def test_pipeline_that_truncates_prompts_reports_how_much(weights: Weights, source: str, steps: int) -> None:
    engine = open_engine(weights, source, steps=None)
    listener = Listener()
    result = engine.run(task(prompt="a long road " * 60), listener)
    assert pixels(result).shape == (64, 64, 3)
    # The number of steps is that of the table for this class of weights.
    assert result.data["steps"] == steps
    assert "tokens of the prompt are ignored" in listener.lines[1]
    jobs = [job(prompt="a fox", steps=1), job(prompt="two cats on a wall", seed=3, steps=1)]
    for one, together in zip(jobs, engine.run_many(jobs), strict=True):
        assert max_difference(pixels(together), pixels(engine.run(one.task, Listener()))) <= ALMOST


def test_xl_pipeline_encodes_long_prompts_with_both_encoders(weights: Weights) -> None:
    engine = open_engine(weights, "sdxl")
    long = "a fox, " * 40
    assert max_difference(paint(engine, prompt=long + "in snow"), paint(engine, prompt=long + "on sand")) > 0
    assert paint(engine, width=75, height=130).shape == (130, 75, 3)


# torch itself causes this warning.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize(("source", "steps", "guidance"), [("turbo", 2, "0"), ("lcm", 4, "1")])
def test_distilled_model_is_detected_and_uses_few_steps(
    weights: Weights, source: str, steps: int, guidance: str
) -> None:
    engine = open_engine(weights, source, steps=None)
    listener = Listener()
    result = engine.run(task(negative_prompt="snow"), listener)
    assert result.data["steps"] == steps
    assert f"{steps} steps, guidance {guidance}, 64 x 64; the negative prompt" in listener.lines[0]
    # The noise of each step belongs to one image of the batch.
    together = engine.run_many([job(seed=1), job(seed=2)])
    for seed, one in zip((1, 2), together, strict=True):
        assert max_difference(pixels(one), paint(engine, seed=seed)) <= ALMOST


def test_safety_checker_withholds_images_unless_disabled(weights: Weights) -> None:
    engine = open_engine(weights, "guarded")
    with pytest.raises(EngineError, match="safety checker rejected this image"):
        engine.run(task(), Listener())
    assert paint(engine, enable_safety_checker=False).shape == (64, 64, 3)
    with pytest.raises(EngineError, match="safety checker"):
        engine.run(task(), Listener())


# -- image inputs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["sd", "sdxl", "flux", "z-image"])
def test_image_to_image_keeps_the_size(weights: Weights, photo: Path, source: str) -> None:
    inputs = task("style-transfer", {"source_image_url": photo}, style_prompt="oil", steps=4)
    result = open_engine(weights, source).run(inputs, Listener())
    assert result.artifacts[0].content_type == "image/webp"
    assert pixels(result).shape == (64, 96, 3)


def test_strength_sets_the_distance_from_the_source(engine: Any, photo: Path) -> None:
    def repaint(strength: float) -> float:
        image = paint(engine, files={"image": photo}, strength=strength, steps=10, format="png")
        return float(np.abs(image.astype(int) - source).mean())

    source = paint(engine, files={"image": photo}, strength=0.1, steps=10, format="png").astype(int)
    assert 0 < repaint(0.3) < repaint(1.0)


def test_transparent_source_keeps_its_alpha(engine: Any, tmp_path: Path) -> None:
    board = np.zeros((64, 64, 4), np.uint8)
    board[..., 0], board[16:48, 16:48, 3] = 200, 255
    Image.fromarray(board).save(tmp_path / "cut.png")
    result = engine.run(task(files={"image": tmp_path / "cut.png"}, format="png"), Listener())
    (tmp_path / "out.png").write_bytes(result.artifacts[0].data)
    with Image.open(tmp_path / "out.png") as image:
        assert (np.asarray(image)[..., 3] == board[..., 3]).all()


def test_unreadable_source_is_a_client_error(engine: Any, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"nothing")
    with pytest.raises(UnusableInput):
        engine.run(task(files={"image": tmp_path / "x.png"}), Listener())


def test_control_scale_sets_the_influence_of_outlines(weights: Weights, photo: Path) -> None:
    weights.path("canny")
    engine = open_engine(weights, "sd", controls={"canny": "canny"})
    free = paint(engine)
    led = paint(engine, files={"control_image": photo})
    assert max_difference(free, led) > 20
    assert max_difference(free, paint(engine, files={"control_image": photo}, control_scale=0)) <= ALMOST
    assert max_difference(led, paint(engine, files={"control_image": photo}, control_end=0.5)) > 0
    both = paint(engine, files={"control_image": photo, "image": photo}, format="png")
    assert both.shape == (64, 96, 3)


def test_added_controlnet_applies_to_fitting_pipelines(weights: Weights, photo: Path) -> None:
    record = weights.path("canny") / "sixfold.json"
    record.write_text('{"role": "controlnet", "control": "canny"}')
    try:
        engine = open_engine(weights, "sd", models={"anime": "sdxl"})
        assert max_difference(paint(engine), paint(engine, files={"control_image": photo})) > 20
        weights.path("sdxl")
        with pytest.raises(EngineError, match="does not have a ControlNet for canny that fits sdxl"):
            engine.run(task("anime", {"control_image": photo}), Listener())
    finally:
        record.unlink()


def test_missing_controlnet_is_named_in_the_error(engine: Any, photo: Path) -> None:
    with pytest.raises(EngineError, match="does not have a ControlNet for depth"):
        engine.run(task(files={"control_image": photo}, control="depth"), Listener())


# -- LoRA ------------------------------------------------------------------------------------------


def test_lora_applies_by_weight_and_only_to_its_task(weights: Weights) -> None:
    engine = open_engine(weights, "sd")
    for name in ("bold", "wild"):
        weights.path(f"loras/{name}.safetensors")
    plain = paint(engine)
    bold = paint(engine, loras=["bold.safetensors"])
    assert max_difference(plain, bold) > 2
    assert max_difference(plain, paint(engine)) == 0
    weak = paint(engine, loras=[{"file": "bold.safetensors", "weight": 0.2}])
    assert np.abs(weak.astype(int) - plain).mean() < np.abs(bold.astype(int) - plain).mean()
    assert max_difference(bold, paint(engine, loras=["wild.safetensors"])) > 2
    assert max_difference(bold, paint(engine, loras=["bold.safetensors"])) == 0


def test_configured_lora_applies_only_to_its_model(weights: Weights) -> None:
    weights.path("loras/bold.safetensors")
    engine = open_engine(weights, "sd", loras={"anime": [{"file": "bold.safetensors", "weight": 0.9}]})
    assert max_difference(paint(engine, model="anime"), paint(engine, model="ra1")) > 2


def test_lora_of_another_model_is_refused_without_effect(weights: Weights) -> None:
    weights.path("sdxl")
    wrong = weights.tiny.lora(weights.folder / "loras" / "wrong.safetensors", weights.folder / "sdxl")
    engine = open_engine(weights, "sd")
    before = paint(engine)
    with pytest.raises(EngineError, match="The LoRA wrong does not fit this model"):
        engine.run(task(loras=[wrong.name]), Listener())
    assert max_difference(before, paint(engine)) == 0


# -- together --------------------------------------------------------------------------------------


def test_batched_images_equal_those_of_single_runs(engine: Any) -> None:
    words = ["a fox", "two cats on a wall", "the sea", ""]
    jobs = [job(prompt=prompt, seed=seed) for seed, prompt in enumerate(words)]
    assert len({engine.shape(each.task) for each in jobs}) == 1
    for each, result in zip(jobs, engine.run_many(jobs), strict=True):
        assert max_difference(pixels(result), pixels(engine.run(each.task, Listener()))) <= ALMOST
        assert "batched with 3 more" in log_of(each)[0]


def test_tasks_of_unequal_size_model_or_steps_are_not_batched(engine: Any) -> None:
    plain = engine.shape(task())
    assert plain == engine.shape(task(prompt="other", seed=1, num_images=4, format="jpeg"))
    for name, value in (("width", 96), ("steps", 3), ("negative_prompt", "x"), ("guidance", 2)):
        inputs: dict[str, Any] = {name: value}
        assert engine.shape(task(**inputs)) != plain
    assert engine.shape(task(width=3)) is None


def test_prompts_of_different_lengths_share_a_batch(engine: Any) -> None:
    jobs = [job(prompt="a fox"), job(prompt="a fox, " * 40)]
    for one, result in zip(jobs, engine.run_many(jobs), strict=True):
        assert max_difference(pixels(result), pixels(engine.run(one.task, Listener()))) <= ALMOST


def test_failed_task_does_not_fail_its_batch(engine: Any) -> None:
    bad, good = engine.run_many([job(format="bmp"), job()])
    assert isinstance(bad, EngineError)
    assert isinstance(good, Result)


def test_canceled_task_does_not_stop_its_batch(engine: Any) -> None:
    jobs = [job(seed=1), job(seed=2, cancel_at=0.3), job(seed=3)]
    first, second, third = engine.run_many(jobs)
    assert isinstance(second, Canceled)
    for one, result in ((jobs[0], first), (jobs[2], third)):
        assert max_difference(pixels(result), pixels(engine.run(one.task, Listener()))) <= ALMOST


def test_canceled_loop_ends_between_two_steps(engine: Any) -> None:
    listener = Listener(cancel_at=0.2)
    with pytest.raises(Canceled):
        engine.run(task(steps=50), listener)
    assert max(listener.fractions) < 0.3
    # The canceled run leaves the pipeline unchanged.
    assert max_difference(paint(engine), paint(engine)) == 0


def test_images_above_the_batch_size_run_in_several_batches(weights: Weights) -> None:
    engine = open_engine(weights, "sd", rows=2)
    listener = Listener()
    result = engine.run(task(num_images=5), listener)
    assert len(result.artifacts) == 5
    assert listener.fractions == sorted(listener.fractions)
    assert max_difference(pixels(result), paint(engine)) <= ALMOST


# -- partial images --------------------------------------------------------------------------------


@dataclass
class Watching(Listener):
    """Context that records partial images."""

    images: list[bytes] = field(default_factory=list[bytes])

    def preview(self, image: bytes) -> None:
        self.images.append(image)


@pytest.mark.parametrize("name", ["sd", "sdxl", "flux", "z-image"])
def test_partial_images_are_sent_between_steps(weights: Weights, name: str) -> None:
    watching = Watching()
    engine = open_engine(weights, name, steps=4)
    engine.run(task(partial_images=2), watching)
    assert len(watching.images) == 2, watching.lines
    assert all(Image.open(io.BytesIO(image)).format == "JPEG" for image in watching.images)


def test_partial_images_do_not_change_the_complete_one(weights: Weights) -> None:
    engine = open_engine(weights, "sd", steps=4)
    plain = pixels(engine.run(task(), Listener()))
    assert np.array_equal(pixels(engine.run(task(partial_images=3), Watching())), plain)
