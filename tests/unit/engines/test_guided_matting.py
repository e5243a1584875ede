"""Cutouts guided by a box, points or a rough mask, on drawings and photographs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from sixfold.core.catalog.engines import Result, Task, UnusableInput
from sixfold.engines.image import face_detection
from sixfold.engines.image.face_detection import DetectedFace
from sixfold.engines.image.matting import engine, guided
from sixfold.engines.image.matting.engine import MattingEngine
from tests.unit.engines.audio.measuring import Recorder
from tests.unit.engines.engine_runs import RunContext

Array = NDArray[Any]
_OUTLINES = tomllib.loads((Path(__file__).parent / "corpus" / "outlines.toml").read_text())
_LEFT, _RIGHT = (80, 100), (230, 100)


@pytest.fixture
def two_discs(tmp_path: Path) -> Path:
    """Write a red and a blue disc of radius 45 on noisy gray."""
    rng = np.random.default_rng(1)
    pixels = np.clip(rng.normal(150, 12, (200, 310, 3)), 0, 255).astype(np.uint8)
    for middle, color in ((_LEFT, (200, 40, 40)), (_RIGHT, (40, 40, 200))):
        cv2.circle(pixels, middle, 45, color, -1)
    path = tmp_path / "discs.png"
    Image.fromarray(pixels).save(path)
    return path


def disc(middle: tuple[int, int]) -> Array:
    return np.asarray(cv2.circle(np.zeros((200, 310), np.uint8), middle, 45, 255, -1)) > 0


def overlap(first: Array, second: Array) -> float:
    return float(np.minimum(first, second).sum() / np.maximum(first, second).sum())


def cut(folder: Path, image: Path, mask: Path | None = None, **inputs: Any) -> Result:
    files = {"image_url": image, **({"mask": mask} if mask else {})}
    return MattingEngine().run(Task("p", "remove-background", inputs, files), Recorder(folder))


def alpha(folder: Path, result: Result) -> Array:
    path = folder / "cut.png"
    path.write_bytes(result.artifacts[0].data)
    with Image.open(path) as image:
        return np.asarray(image)[..., 3] / 255


@pytest.mark.parametrize("middle", [_LEFT, _RIGHT])
def test_the_marked_subject_is_cut_out(tmp_path: Path, two_discs: Path, middle: tuple[int, int]) -> None:
    x, y = middle
    other = _RIGHT if middle == _LEFT else _LEFT
    rough = tmp_path / "rough.png"
    Image.fromarray((cv2.blur(disc(middle).astype(np.float32), (9, 9)) * 255).astype(np.uint8)).save(rough)
    for result in (
        cut(tmp_path, two_discs, box=[x - 50, y - 50, x + 50, y + 50]),
        cut(tmp_path, two_discs, points=[x, y, 1, *other, 0]),
        cut(tmp_path, two_discs, rough),
    ):
        assert overlap(alpha(tmp_path, result), disc(middle)) > 0.93


@pytest.mark.parametrize(("left", "size", "is_person"), [(30, 56, True), (75, 56, False), (30, 28, False)])
def test_a_box_with_a_face_excludes_objects_beside_the_body(
    tmp_path: Path, two_discs: Path, monkeypatch: pytest.MonkeyPatch, left: int, size: int, is_person: bool
) -> None:
    """A face outside the box, or one of a body that is small in the box, is ignored."""
    box = [left, 40, 276, 180]
    before = alpha(tmp_path, cut(tmp_path, two_discs, box=box))
    assert before[disc(_RIGHT)].mean() > 0.9

    def find(rgb: Array) -> tuple[DetectedFace, ...]:
        rows, columns = np.nonzero(rgb[..., 0].astype(int) > rgb[..., 2].astype(int) + 100)
        x, y = float(columns.mean()), float(rows.mean())
        return (DetectedFace(x - size * 0.45, y - 2 - size, x + size * 0.45, y - 2),)

    monkeypatch.setattr(face_detection, "find", find)
    after = alpha(tmp_path, cut(tmp_path, two_discs, box=box))
    assert (before == after).all() != is_person
    if is_person:
        assert overlap(after, disc(_LEFT)) > 0.93


@pytest.mark.parametrize("points", [[], [185, 90, 1]])
def test_a_subject_smaller_than_its_box_is_cut_from_the_middle(tmp_path: Path, points: list[int]) -> None:
    rng = np.random.default_rng(1)
    pixels, subject = rng.normal(150, 20, (200, 310, 3)), np.zeros((200, 310), np.uint8)
    cv2.circle(subject, (150, 110), 60, 1, -1)
    pixels[subject > 0] = rng.normal((175, 150, 125), 20, (int(subject.sum()), 3))
    cv2.circle(pixels, (185, 90), 14, (200, 30, 30), -1)
    path = tmp_path / "spotted.png"
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(path)
    found = alpha(tmp_path, cut(tmp_path, path, box=[86, 46, 214, 174], points=points))
    # A point says that the spot alone is the subject.
    assert (overlap(found, subject) > 0.9) == (not points)


def test_an_uncertain_cutout_asks_for_marks_only_without_marks(
    tmp_path: Path, two_discs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "FULL_FROM", 1.1)
    for inputs, advice in (({}, "mark the subject with box"), ({"box": [30, 50, 130, 150]}, "add points or")):
        context = RunContext(tmp_path)
        task = Task("p", "remove-background", inputs, {"image_url": two_discs})
        MattingEngine().run(task, context)
        assert advice in context.lines[0]


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({"box": [1, 2, 3]}, "4 numbers"),
        ({"box": [50, 50, 50, 90]}, "at least 2 pixels"),
        ({"points": [5, 5]}, r"three numbers per point \(got 2 numbers\): x, y"),
        ({"points": [500, 5, 1]}, "inside the 310 x 200 image"),
        ({"points": [5, 5, 2]}, "1 or 0"),
        ({"points": [5, 5, 0]}, "at least one point on the subject"),
    ],
)
def test_empty_marks_are_refused(
    tmp_path: Path, two_discs: Path, inputs: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UnusableInput, match=sentence):
        cut(tmp_path, two_discs, **inputs)


def test_a_mask_of_one_color_is_refused(tmp_path: Path, two_discs: Path) -> None:
    white = tmp_path / "white.png"
    Image.new("L", (310, 200), 255).save(white)
    with pytest.raises(UnusableInput, match="black elsewhere"):
        cut(tmp_path, two_discs, white)


def test_equal_marks_give_equal_bytes(tmp_path: Path, two_discs: Path) -> None:
    first, second = (cut(tmp_path, two_discs, box=[30, 50, 130, 150]).artifacts[0].data for _ in range(2))
    assert first == second


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "with_box", "with_mask"),
    [("astronaut", 0.9, 0.95), ("camera", 0.87, 0.95), ("coffee", 0.9, 0.92)],
)
def test_photographs_are_cut_out_along_outlines_drawn_by_hand(
    name: str, with_box: float, with_mask: float
) -> None:
    rgb = np.array(getattr(pytest.importorskip("skimage.data"), name)())
    rgb = np.dstack([rgb] * 3) if rgb.ndim == 2 else rgb
    outline = np.array(_OUTLINES[name]["outline"], np.int32).reshape(-1, 2)
    truth = np.zeros(rgb.shape[:2], np.uint8)
    cv2.fillPoly(truth, [outline], (1,))
    left, top, across, down = cv2.boundingRect(truth)
    right, bottom = left + across + 3, top + down + 3
    height, width = rgb.shape[:2]
    box = (max(0, left - 3), max(0, top - 3), min(width, right), min(height, bottom))
    cut_out, _ = guided.alpha(rgb, guided.SubjectMarks(box, (), None))
    assert overlap(cut_out, truth) > with_box
    rough = np.asarray(cv2.dilate(truth, np.ones((15, 15), np.uint8))) > 0
    cut_out, _ = guided.alpha(rgb, guided.SubjectMarks(None, (), rough))
    assert overlap(cut_out, truth) > with_mask
