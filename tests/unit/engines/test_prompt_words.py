"""The preview engines name the words of a prompt that they did not act upon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sixfold.core.catalog.prompt_words import MAX_WORDS, PromptWords
from sixfold.core.sessions.engine import Controls, EngineStep
from sixfold.engines import prompt_words
from sixfold.engines.audio import effects
from sixfold.engines.audio.music import genres
from sixfold.engines.image.scene import prompt_parser
from sixfold.engines.image.styles import prompt_parser as style_parser
from sixfold.engines.live.motion import actions
from sixfold.engines.live.motion.engine import MotionEngine
from sixfold.engines.live.world import prompt_parser as world_parser
from sixfold.engines.three_d import prompt_parser as object_parser
from sixfold.engines.video import camera_moves


def video_words(prompt: str) -> PromptWords:
    plan = camera_moves.parse(prompt)
    return prompt_words.of_parts(prompt, (plan.words, prompt_parser.parse(plan.rest).words))


READERS: dict[str, Callable[[str], PromptWords]] = {
    "image": lambda prompt: prompt_parser.parse(prompt).words,
    "video": video_words,
    "3d": lambda prompt: object_parser.parse(prompt).words,
    "world": lambda prompt: world_parser.parse(prompt).words,
    "motion": actions.words,
    "sound": effects.words,
    "song": genres.words,
    "style": lambda prompt: style_parser.parse(prompt).words,
}


def unknown_words() -> list[tuple[str, str, list[str]]]:
    lines = (Path(__file__).parent / "corpus/unknown_words.txt").read_text("utf-8").splitlines()
    rows = [[part.strip() for part in line.split("|")] for line in lines if not line.startswith("#")]
    return [(engine, prompt, words.split()) for engine, prompt, words in rows]


@pytest.mark.parametrize(
    ("prompt", "word"),
    [
        ("a crow on a fence", "crow"),
        ("two huskies in the snow", "huskies"),
        ("a tram in a city", "tram"),
        ("a hospital", "hospital"),
        ("a king on a hill", "king"),
        ("a satellite dish in a desert", "dish"),
        ("a toadstool ring in a forest", "ring"),
        ("a compass rose on the wall", "rose"),
        ("an oil rig at dusk", "oil"),
        ("an old windmill among tulips", "tulips"),
        ("daisies in a meadow", "daisies"),
        ("a polar bear on the ice", "polar"),
        ("a whiteboard in an office", "whiteboard"),
        ("a pair of boots", "boots"),
        ("a baby in a crib", "baby"),
        ("a ripe lemon, close-up", "lemon"),
        ("an orange on a table", "orange"),
        ("olives in a bowl", "olives"),
        ("a lantern in the rain", "rain"),
        ("a teapot in a storm", "storm"),
    ],
)
def test_word_with_only_a_similar_drawing_is_ignored(prompt: str, word: str) -> None:
    words = READERS["image"](prompt)
    assert word in words.ignored
    assert word not in words.understood


def test_every_unknown_noun_is_reported_as_ignored() -> None:
    rows = unknown_words()
    silent = [
        (prompt, word)
        for engine, prompt, words in rows
        for word in words
        if word not in READERS[engine](prompt).ignored
    ]
    assert len(rows) >= 200
    assert silent == []


@pytest.mark.parametrize(
    ("prompt", "understood"),
    [
        ("a red fox in a snowy forest at dusk", {"red", "fox", "snowy", "forest", "dusk"}),
        ("two black cats sleeping on a sofa", {"two", "black", "cats", "sofa"}),
        ("a beach without people at noon", {"beach", "people", "noon"}),
        ("ein roter Leuchtturm am Meer", {"leuchtturm", "meer"}),
        ("雪中的狐狸", {"雪", "狐狸"}),
        ("a brown bear and a panda", {"brown", "bear", "panda"}),
        ("a sunflower in a lemon room", {"sunflower", "lemon", "room"}),
        ("a man in orange under an orange sky", {"man", "orange"}),
        ("a red panda beside a waterfall", {"red", "panda", "waterfall"}),
        ("a rainbow over an old stone bridge", {"rainbow", "old", "stone", "bridge"}),
    ],
)
def test_drawn_words_count_as_understood(prompt: str, understood: set[str]) -> None:
    assert understood <= set(READERS["image"](prompt).understood)


@pytest.mark.parametrize(
    ("prompt", "subjects", "places"),
    [
        ("a red panda in a tree", ["red panda", "tree"], ()),
        ("a panda teapot", ["teapot"], ()),
        ("a dog collar", [], ()),
        ("a dog walks on the beach", ["dog"], ("beach",)),
        ("dogs bark at the moon", ["dog"], ()),
        ("a kitchen with copper pans hanging over an island", [], ("interior",)),
        ("a baby elephant", ["elephant"], ()),
        ("un gato grande", ["cat"], ()),
        ("a parked car", ["car"], ()),
    ],
)
def test_compound_is_parsed_by_its_head(prompt: str, subjects: list[str], places: tuple[str, ...]) -> None:
    scene = prompt_parser.parse(prompt)
    assert ([subject.name for subject in scene.subjects], scene.places) == (subjects, places)


@pytest.mark.parametrize(
    ("prompt", "ignored"),
    [
        ("a red tulip", "tulip"),
        ("a whale", "whale"),
        ("a golden throne", "throne"),
        ("a christmas tree", "christmas tree"),
        ("two taxis and a taxi", "taxi"),
        ("a cup of coffee", "coffee"),
    ],
)
def test_similar_object_of_a_3d_model_is_ignored(prompt: str, ignored: str) -> None:
    assert object_parser.parse(prompt).objects[0].name
    assert set(ignored.split()) <= set(READERS["3d"](prompt).ignored)
    assert "flower" in READERS["3d"]("a red flower").understood


def test_count_above_the_drawn_maximum_is_ignored() -> None:
    assert "ten" in READERS["image"]("ten cats").ignored
    assert "four" in READERS["3d"]("four towers").understood
    assert len(object_parser.parse("four towers").objects) == 4


def test_lists_of_words_are_bounded() -> None:
    words = READERS["image"](" ".join(f"gadget{n}" for n in range(3000)))
    assert len(words.ignored) == MAX_WORDS
    assert len((words | words).ignored) == MAX_WORDS
    assert READERS["image"]("x" * 5000).ignored == ("x" * 40,)


def test_session_reports_ignored_words_once_per_prompt() -> None:
    engine = MotionEngine()
    first = engine.step(EngineStep("m", {"prompt": "do a cartwheel"}, None, Controls(), 20, 0))
    later = engine.step(EngineStep("m", {}, first.state, Controls(), 20))
    changed_result = engine.step(EngineStep("m", {}, later.state, Controls(prompt="walk and juggle"), 20))
    assert (first.words, later.words) == (PromptWords((), ("cartwheel",)), None)
    assert changed_result.words == PromptWords(("walk",), ("juggle",))
