"""The scene painter, tested by detectors on its images."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from sixfold import settings
from sixfold.core.catalog.engines import Canceled, EngineError, Result, Task
from sixfold.engines.image.scene import layout, noise, painter, prompt_parser, shapes
from sixfold.engines.image.scene.engine import SceneEngine
from tests.harness.cases import nightly_after
from tests.unit.engines import scene_pixels as pixels

HERE = Path(__file__).parent

CORPUS = tomllib.loads((HERE / "corpus" / "scene_prompts.toml").read_text("utf-8"))["prompt"]


class Listener:
    """A context that records progress and logs, and can cancel a run."""

    def __init__(self, patience: float = 2.0) -> None:
        # This engine writes no file.
        self.scratch = Path()
        self.fractions: list[float] = []
        self.patience = patience

    def progress(self, fraction: float) -> None:
        self.fractions.append(fraction)
        if fraction >= self.patience:
            raise Canceled

    def log(self, line: str) -> None:
        """Say nothing."""


def run(prompt: str, model: str = "ra1", **inputs: Any) -> Result:
    settings = {"prompt": prompt, "width": 192, "height": 192, "seed": 7, **inputs}
    return SceneEngine().run(Task("t", model, settings), Listener())


def decode(data: bytes) -> pixels.Picture:
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    return image


@cache
def paint(prompt: str, model: str = "ra1", **inputs: Any) -> pixels.Picture:
    return decode(run(prompt, model, **inputs).artifacts[0].data)


@cache
def sightings() -> dict[str, list[tuple[str, bool]]]:
    """Return for every label class whether each label was detected in its image."""
    observations: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for entry in CORPUS:
        image = paint(entry["text"])
        for kind in ("time", "palette", "weather", "terrain"):
            if kind in entry:
                result = pixels.SIGHTS[kind, entry[kind]](image)
                observations[kind].append((f"{entry['text']}: {entry[kind]}", result))
        if "subject" in entry:
            bare = paint(entry["text"], negative_prompt=entry["subject"])
            observations["subject"].append((entry["text"], pixels.stands_out(image, bare)))
    return observations


def test_the_corpus_has_sixty_prompts() -> None:
    assert len(CORPUS) == 60


@pytest.mark.nightly
def test_nine_in_ten_labels_are_detected_in_the_image() -> None:
    labels = [label for group in sightings().values() for label in group]
    missed = [text for text, result in labels if not result]
    assert len(missed) <= len(labels) * 0.1, missed


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["time", "palette", "weather", "terrain", "subject"])
def test_three_in_four_labels_of_each_class_are_detected(kind: str) -> None:
    group = sightings()[kind]
    assert sum(result for _, result in group) >= len(group) * 0.75, [
        text for text, result in group if not result
    ]


def _alarms(kind: str, label: str) -> float:
    """Return how often a detector finds its label in images of other prompts."""
    others = [e for e in CORPUS if (kind in e or kind == "weather") and e.get(kind) != label]
    wrong = [pixels.SIGHTS[kind, label](paint(entry["text"])) for entry in others]
    return sum(wrong) / len(wrong)


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("time", "night"),
        ("time", "day"),
        ("time", "sunset"),
        ("weather", "rain"),
        ("weather", "snow"),
        ("weather", "storm"),
        ("terrain", "ridges"),
        ("terrain", "space"),
        ("terrain", "green"),
        ("terrain", "sand"),
    ],
)
@pytest.mark.nightly
def test_detectors_have_few_false_alarms(kind: str, label: str) -> None:
    assert _alarms(kind, label) < 0.3


@cache
def likeness() -> dict[tuple[str, str], list[float]]:
    looks = ("ra1", "anime", "photoreal", "create_image_klein")
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    for entry in CORPUS[::2]:
        images = {look: paint(entry["text"], look, width=256, height=256) for look in looks}
        for a, b in itertools.combinations(looks, 2):
            scores[a, b].append(pixels.ssim(images[a], images[b]))
    return scores


@pytest.mark.nightly
def test_four_models_have_different_styles() -> None:
    means = {pair: float(np.mean(values)) for pair, values in likeness().items()}
    assert len(next(iter(likeness().values()))) == 30
    assert max(means.values()) < 0.7, means


def _odd_prompts() -> list[str]:
    rng = noise.stream("odd prompts")
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    fixed = [
        "",
        "a",
        "?",
        "!!!",
        "🦄🌈🔥",
        "\u202eabc",
        "日本",
        "ж",
        "مرحبا بالعالم",
        "שלום",
        "ไทย",
        "x" * 4000,
    ]
    fixed += [
        "mountain " * 440,
        "\x00\x01",
        "1234567890",
        "no",
        "not not not",
        "#ff00ff",
        "<b>bold</b>",
        "a\nb\tc",
    ]
    results = []
    for _ in range(100 - len(fixed)):
        count = int(rng.integers(1, 12))
        letters = ["".join(rng.choice(list(alphabet), int(rng.integers(1, 11)))) for _ in range(count)]
        results.append(" ".join(letters))
    return fixed + results


@pytest.mark.parametrize("step", nightly_after(1, [5, 1]))
def test_every_prompt_gives_an_image_with_content(step: int) -> None:
    prompts = _odd_prompts()
    assert len(prompts) == 100
    for prompt in prompts[::step]:
        image = paint(prompt, width=128, height=128)
        results = (
            pixels.entropy(image),
            pixels.color_count(image),
            float(cv2.Laplacian(pixels.gray(image), cv2.CV_32F).std()),
        )
        assert results[0] > 3.5, (prompt[:40], results)
        assert results[1] > 60, (prompt[:40], results)
        assert results[2] > 0.01, (prompt[:40], results)


_ELSEWHERE = """
import hashlib, cv2
from sixfold.core.catalog.engines import Task
from sixfold.engines.image.scene.engine import SceneEngine
class Quiet:
    def progress(self, fraction): pass
    def log(self, line): pass
cv2.setNumThreads({threads})
for model in ("ra1", "anime", "photoreal", "create_image_klein"):
    task = Task("t", model, dict(prompt="a fox by the lake at sunset", width=200, height=150, seed=5))
    print(hashlib.sha256(SceneEngine().run(task, Quiet()).artifacts[0].data).hexdigest())
"""


@pytest.mark.nightly
def test_bytes_are_independent_of_process_threads_and_hash_seed() -> None:
    answers = set()
    for threads, seed in ((1, "1"), (2, "99")):
        environment = {**settings.worker_environment(), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", _ELSEWHERE.format(threads=threads)]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        answers.add(result.stdout)
    here = "\n".join(
        hashlib.sha256(
            run("a fox by the lake at sunset", m, width=200, height=150, seed=5).artifacts[0].data
        ).hexdigest()
        for m in ("ra1", "anime", "photoreal", "create_image_klein")
    )
    assert answers == {here + "\n"}


def test_another_seed_gives_another_image() -> None:
    for prompt in ("mountains at sunset", "qwx zzt", "a cat"):
        assert pixels.ssim(paint(prompt, seed=1), paint(prompt, seed=2)) < 0.8


def test_several_images_differ_and_the_first_equals_the_single() -> None:
    several = run("a lake", num_images=3)
    files = [artifact.data for artifact in several.artifacts]
    assert len(set(files)) == 3
    assert files[0] == run("a lake").artifacts[0].data
    assert len(several.data["seeds"]) == 3
    assert several.data["seeds"][0] == 7


@pytest.mark.parametrize("size", [(64, 64), (333, 777), (1360, 768), (65, 1500), (97, 64)])
def test_image_has_exactly_the_requested_size(size: tuple[int, int]) -> None:
    image = paint("a castle by the sea", width=size[0], height=size[1])
    assert image.shape[:2] == (size[1], size[0])


def test_images_larger_than_the_canvas_keep_size_and_gain_grain() -> None:
    result = run("mountains", width=1700, height=300, format="jpeg")
    assert decode(result.artifacts[0].data).shape[:2] == (300, 1700)


@pytest.mark.parametrize(
    ("kind", "start"),
    [("png", b"\x89PNG"), ("jpeg", b"\xff\xd8\xff"), ("webp", b"RIFF"), ("avif", b"\0\0\0")],
)
def test_image_has_the_requested_format(kind: str, start: bytes) -> None:
    artifact = run("a tree", format=kind).artifacts[0]
    assert artifact.data.startswith(start)
    assert artifact.content_type == f"image/{kind}"
    assert dict(artifact.info) == {"width": 192, "height": 192}


def test_negative_prompt_removes_the_subject() -> None:
    scene = prompt_parser.parse("a cat and a dog in a meadow", "cat")
    assert [subject.name for subject in scene.subjects] == ["dog"]
    changed_image = paint("a lighthouse by the sea at noon", negative_prompt="lighthouse")
    assert pixels.stands_out(paint("a lighthouse by the sea at noon"), changed_image)


def test_negation_in_the_prompt_removes_the_subject() -> None:
    scene = prompt_parser.parse("a beach without people, no clouds")
    assert scene.subjects == ()
    assert scene.weather is None


def test_inflections_phrases_and_other_languages_are_understood() -> None:
    assert [s.name for s in prompt_parser.parse("three running foxes").subjects] == ["fox"]
    assert prompt_parser.parse("three running foxes").subjects[0].count == 3
    assert prompt_parser.parse("the golden hour").time == "sunset"
    assert prompt_parser.parse("Wölfe im Wald").places == ("forest",)
    assert prompt_parser.parse("夜晚的城市").time == "night"
    assert prompt_parser.parse("a red car").subjects[0].color == "red"
    assert prompt_parser.parse("many cities").places == ("city",)


TOGETHER: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
    ("a fishing village", ("harbour", "village"), ("sailboat",)),
    ("old fishing villages in the rain", ("harbour", "village"), ("sailboat",)),
    ("漁村の朝", ("harbour",), ()),
    ("a fishing boat on a lake", ("lake",), ("sailboat",)),
    ("a man fishing by the river", ("river",), ("person",)),
    ("a dog house in a garden", ("garden",), ("house",)),
    ("a tiger lily", (), ("flower",)),
    ("a tiger and a lily", (), ("tiger", "flower")),
    ("starfish on the beach", ("beach",), ()),
    ("a fish under water", ("underwater",), ("fish",)),
    ("a cottage by a lake", ("lake",), ("house",)),
    ("a waterfall in a jungle", ("forest",), ("waterfall",)),
    ("a red apple", (), ("apple",)),
    ("a bowl of fruit", (), ("fruit",)),
    ("an apple tree", (), ("tree",)),
]


@pytest.mark.parametrize(("prompt", "places", "subjects"), TOGETHER)
def test_word_groups_have_their_own_meaning(
    prompt: str, places: tuple[str, ...], subjects: tuple[str, ...]
) -> None:
    scene = prompt_parser.parse(prompt)
    assert scene.places == places
    assert tuple(subject.name for subject in scene.subjects) == subjects


def test_fishing_village_is_mirrored_in_the_water() -> None:
    plan = layout.compose(prompt_parser.parse("a fishing village"), 1, (320, 512))
    assert plan.place == "harbour"
    image = paint("a fishing village at noon", seed=1, width=512, height=320).astype(np.float32)
    # The channels are blue, green and red.
    roofs = image[..., 2] > 1.6 * image[..., 0]
    low = image[240:]
    assert roofs[150:230].mean() > 4 * max(roofs[:120].mean(), 0.002)
    assert low[..., 0].mean() > low[..., 2].mean() * 1.3


def test_library_has_at_least_45_shapes() -> None:
    assert len(shapes.library()) >= 45
    assert all(shape.parts for shape in shapes.library().values())


DRAWN = sorted(name for name, shape in shapes.library().items() if shape.words)


# `make nightly` draws every one.
@pytest.mark.parametrize(
    "name",
    nightly_after(
        10,
        [
            pytest.param(name, marks=pytest.mark.nightly if number % 5 else ())
            for number, name in enumerate(DRAWN)
        ],
    ),
)
def test_every_shape_is_visible_in_its_usual_place(name: str) -> None:
    shape = shapes.library()[name]
    home = {"moon": "lunar surface"}.get(shape.home[0], shape.home[0])
    prompt = f"{name}, {home}, noon"
    small = {"width": 128, "height": 128}
    assert pixels.stands_out(paint(prompt, **small), paint(prompt, negative_prompt=name, **small))


def test_progress_is_reported_in_steps_and_never_falls() -> None:
    listener = Listener()
    SceneEngine().run(Task("t", "ra1", {"prompt": "sea", "width": 64, "height": 64, "seed": 1}), listener)
    assert listener.fractions == sorted(listener.fractions)
    assert len(listener.fractions) >= 5
    assert listener.fractions[-1] == 1.0


def test_canceled_run_stops() -> None:
    with pytest.raises(Canceled):
        SceneEngine().run(
            Task("t", "ra1", {"prompt": "sea", "width": 64, "height": 64, "seed": 1}), Listener(0.3)
        )


def test_unsupported_size_or_format_is_refused() -> None:
    with pytest.raises(EngineError, match="width must be"):
        run("a", width=63)
    with pytest.raises(EngineError, match="format must be"):
        run("a", format="gif")


def test_result_lists_recognised_words_and_is_a_preview() -> None:
    result = run("two foxes in a forest at night")
    assert result.quality == "preview"
    assert result.data["scene"] == {
        "time": "night",
        "places": ["forest"],
        "subjects": [{"name": "fox", "count": 2}],
    }


@pytest.mark.parametrize(
    ("prompt", "weather", "has_lightning", "ignored"),
    [
        ("lightning over a snowy forest", "snow", True, ()),
        ("a foggy lake with thunder and lightning", "fog", True, ()),
        ("Gewitter, snowing, mountains", "snow", True, ()),
        ("a snowy village in a storm", "snow", False, ("storm",)),
        ("lightning over a lake", "storm", False, ()),
        ("lightning and rain over a lake", "rain", True, ()),
        ("a snowy forest without lightning", "snow", False, ()),
        ("a snowstorm", "snow", False, ()),
        ("a snowy picture, lightning, in a kitchen", "snow", False, ("snowy", "lightning")),
    ],
)
def test_lightning_is_shown_in_the_named_weather(
    prompt: str, weather: str, has_lightning: bool, ignored: tuple[str, ...]
) -> None:
    scene = prompt_parser.parse(prompt)
    assert (scene.weather, scene.has_lightning, scene.words.ignored) == (weather, has_lightning, ignored)


def test_snow_falls_and_lightning_strikes_in_one_image() -> None:
    images = [
        painter.paint(prompt_parser.parse(prompt), "ra2", 7, (192, 128), lambda _: None)
        for prompt in ("lightning over a snowy forest", "a snowy forest")
    ]
    assert (images[0] - images[1] > 0.2).any(2).sum() > 500
