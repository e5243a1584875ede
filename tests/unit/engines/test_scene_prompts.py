"""Named details of a prompt are in the image: papers, colors, numbers, faces, letters, relations."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from msgspec.structs import replace

from sixfold.core.catalog.engines import Task
from sixfold.engines.image.scene import layout, painter, prompt_parser, shapes, subjects
from sixfold.engines.image.scene.engine import SceneEngine
from tests.unit.engines import scene_pixels as pixels


class Listener:
    """A context without a listener."""

    def __init__(self) -> None:
        # This engine writes no file.
        self.scratch = Path()

    def progress(self, fraction: float) -> None:
        """Take no note."""

    def log(self, line: str) -> None:
        """Say nothing."""


@cache
def paint(prompt: str, model: str = "ra2", **inputs: Any) -> pixels.Picture:
    request = {"prompt": prompt, "width": 288, "height": 256, "seed": 7, **inputs}
    result = SceneEngine().run(Task("t", model, request), Listener())
    assert result.quality == "preview"
    image = cv2.imdecode(np.frombuffer(result.artifacts[0].data, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    return image


def place(prompt: str) -> str:
    return layout.compose(prompt_parser.parse(prompt), 1, (256, 256)).place


def corners(picture: pixels.Picture) -> np.ndarray[Any, Any]:
    """The mean blue, green and red of the upper corners."""
    high, wide = picture.shape[0] // 10, picture.shape[1] // 10
    return np.concatenate([picture[:high, :wide], picture[:high, -wide:]], 1).reshape(-1, 3).mean(0)


def share(picture: pixels.Picture, low: float, high: float) -> float:
    """Return the share of strongly colored pixels with a hue from `low` to `high` degrees."""
    hue, saturation, value = pixels.hsv(picture)
    within = (hue >= low) & (hue <= high) if low <= high else (hue >= low) | (hue <= high)
    return float((within & (saturation > 0.35) & (value > 0.2)).mean())


@pytest.mark.parametrize("model", ["ra1", "ra2", "photoreal", "anime", "create_image", "fast-image-native"])
def test_subject_on_white_has_a_white_background(model: str) -> None:
    image = paint("a red mug on a white background", model)
    assert corners(image).min() > 225
    assert corners(image[::-1]).min() > 215
    assert share(image, 340, 20) > 0.03


@pytest.mark.parametrize(
    ("color", "low", "high"),
    [("blue", 195, 250), ("green", 80, 170), ("yellow", 40, 65), ("pink", 320, 360), ("purple", 250, 300)],
)
def test_background_has_the_named_color(color: str, low: float, high: float) -> None:
    image = paint(f"a white cup on a {color} background", "photoreal")
    hue, saturation, _ = pixels.hsv(image[:20])
    assert low <= float(np.median(hue)) <= high
    assert float(np.median(saturation)) > 0.12
    _, saturation, value = pixels.hsv(image[120:200, 120:170])
    assert float((saturation < 0.15).mean() + (value > 0.7).mean()) > 0.3


def test_black_and_plain_backgrounds_are_uniform() -> None:
    assert corners(paint("a watch on a black background", "photoreal")).max() < 50
    assert place("a shoe, plain background") == "studio"
    assert place("白い猫、白背景") == "studio"
    assert prompt_parser.parse("una taza, fondo blanco").backdrop == "white"
    assert prompt_parser.parse("a bag isolated on white").backdrop == "white"
    assert place("a village with mountains in the background") == "village"


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7])
def test_image_has_the_requested_number_of_objects(count: int) -> None:
    image = paint(f"{count} red apples on a white background", width=512)
    hue, saturation, _ = pixels.hsv(image)
    red = (((hue < 20) | (hue > 340)) & (saturation > 0.5)).astype(np.uint8)
    _, _, stats, _ = cv2.connectedComponentsWithStats(red)
    assert int((stats[1:, cv2.CC_STAT_AREA] > red.size * 0.002).sum()) == count


def test_object_and_clothes_have_their_own_colors() -> None:
    scene = prompt_parser.parse("a blue cat with a red scarf")
    assert scene.subjects[0].color == "blue"
    assert dict(scene.worn)["scarf"] == "red"
    assert scene.colors == ()
    image = paint("a blue cat with a red scarf on a white background")
    assert share(image, 200, 250) > 0.04
    assert share(image, 345, 20) > 0.006
    assert corners(image).min() > 225
    assert share(paint("a blue cat on a white background"), 345, 20) < share(image, 345, 20) / 2


@pytest.mark.parametrize(("hair", "low", "high"), [("red", 5, 35), ("blue", 200, 240), ("green", 90, 170)])
def test_portrait_has_the_requested_hair(hair: str, low: float, high: float) -> None:
    assert prompt_parser.parse(f"a girl with {hair} hair").frame == "portrait"
    image = paint(f"portrait of a woman with {hair} hair", "photoreal")
    middle = image[:, 90:200]
    bald = paint("portrait of a woman with grey hair", "photoreal")[:, 90:200]
    assert share(middle, low, high) > 0.12 + share(bald, low, high) * 0.5


def test_portrait_of_an_animal_shows_only_the_animal() -> None:
    scene = prompt_parser.parse("close-up portrait of a cat")
    assert [subject.name for subject in scene.subjects] == ["cat"]
    near, far = paint("portrait of a ginger cat"), paint("a ginger cat, studio")
    assert share(near, 10, 40) > share(far, 10, 40)


def test_portrait_heads_have_every_part_of_the_vocabulary() -> None:
    for name in ("bust_man", "bust_woman"):
        roles = {part.role for part in shapes.library()[name].parts}
        assert {"hair", "eye", "coat", "scarf", "hat", "glasses"} <= roles
    assert "beard" in {part.role for part in shapes.library()["bust_man"].parts if part.optional}


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("a wooden sign that says OPEN", "OPEN"),
        ('a logo with the text "Brew & Co"', "Brew & Co"),
        ("the word HELLO in neon letters", "HELLO"),
        ("a sign reading NO ENTRY in a park", "NO ENTRY"),
        ("a man who says nothing", ""),
        ("“日本” on a wall", ""),
    ],
)
def test_text_to_write_is_found_in_the_prompt(prompt: str, text: str) -> None:
    assert prompt_parser.parse(prompt).letters == text


def test_text_is_drawn_and_other_text_differs() -> None:
    scene = prompt_parser.parse("a wooden sign that says OPEN")
    first, second = (
        painter.paint(replace(scene, letters=text), "ra2", 5, (256, 288), lambda _stage: None)
        for text in ("OPEN", "SALE")
    )
    assert 0.004 < (np.abs(first - second).max(2) > 0.16).mean() < 0.2
    glowing = paint("the word HELLO in neon letters")
    assert glowing[90:160].max() > 240
    assert float(np.median(glowing)) < 70


def test_icon_is_one_flat_object_on_a_tile() -> None:
    image = paint("flat icon of a rocket", width=256)
    assert corners(image).min() > 250
    assert share(image, 0, 360) > 0.3
    assert len(np.unique(image[128:130, 60:64].reshape(-1, 3), axis=0)) <= 3


LINKS: list[tuple[str, tuple[str, str, str] | None]] = [
    ("an astronaut riding a horse", ("on", "astronaut", "horse")),
    ("a cat on a chair", ("on", "cat", "chair")),
    ("a robot holding a flower", ("hold", "robot", "flower")),
    ("a castle on a hill with a dragon", None),
    ("a cat and a dog", None),
    ("two kittens in a basket", ("in", "cat", "basket")),
    ("a basket of strawberries", ("in", "strawberry", "basket")),
    ("a box full of apples", ("in", "apple", "box")),
    ("a robot playing the piano", ("hold", "robot", "piano")),
    ("a teacher in front of a blackboard", None),
]


@pytest.mark.parametrize(("prompt", "link"), LINKS)
def test_link_of_two_subjects_is_parsed(prompt: str, link: tuple[str, str, str] | None) -> None:
    assert prompt_parser.parse(prompt).link == link


@pytest.mark.parametrize(
    ("prompt", "count"),
    [("a school girl", 1), ("a school of fish", 7), ("a pair of dogs", 2), ("a plate of fries", 1),
     ("a bouquet of roses in a vase", 1), ("five balloons", 5), ("wolves", 3), ("a field of sunflowers", 7),
     ("two kittens in a basket", 2), ("a basket with two kittens", 1)],
)  # fmt: skip
def test_number_words_set_the_count_of_their_noun(prompt: str, count: int) -> None:
    assert prompt_parser.parse(prompt).subjects[0].count == count


COLORS: list[tuple[str, tuple[str, ...]]] = [
    ("a man with a white beard by the sea", ()),
    ("white clouds over a lake", ()),
    ("a purple sky over mountains", ()),
    ("mountains in blue and orange", ("blue", "orange")),
    ("teal ocean waves", ()),
    ("a teal forest", ("teal",)),
    ("a bird on a branch with pink blossoms", ()),
    ("a lake with a red canoe-shaped thing", ()),
]


@pytest.mark.parametrize(("prompt", "colors"), COLORS)
def test_unassigned_color_applies_to_the_whole_image(prompt: str, colors: tuple[str, ...]) -> None:
    assert prompt_parser.parse(prompt).colors == colors


def test_street_and_room_prompts_select_their_place() -> None:
    assert place("a street in New York at night") == "street"
    assert place("a yellow car") == "street"
    assert place("the skyline of a city") == "city"
    assert place("an apple and a boy") == "interior"
    assert prompt_parser.parse("the camera pans left over a lake").subjects == ()
    assert place("a girl with an umbrella on a bridge") == shapes.library()["bridge"].home[0]
    dark, day = paint("a city street at night"), paint("a city street at noon")
    assert float(pixels.gray(dark).mean()) < float(pixels.gray(day).mean()) * 0.6
    empty, full = paint("an empty living room"), paint("a living room")
    assert float((np.abs(empty.astype(np.int16) - full.astype(np.int16)).max(2) > 24).mean()) > 0.08


@pytest.mark.parametrize("prompt", ["isometric bedroom", "isometric city"])
def test_isometric_subject_has_a_plain_background(prompt: str) -> None:
    image = paint(prompt)
    edge = np.concatenate([image[:12].reshape(-1, 3), image[-12:].reshape(-1, 3)])
    assert float(edge.std(0).max()) < 22
    assert float(image[80:180, 90:200].reshape(-1, 3).std(0).max()) > 30


def spots(prompt: str) -> dict[str, list[subjects.SubjectSpot]]:
    """Return the position of each object of a prompt, in painting order."""
    stage = painter.stage_scene(prompt_parser.parse(prompt), "ra2", 5, (240, 320), lambda _stage: None)
    result: dict[str, list[subjects.SubjectSpot]] = {}
    for subject, _, spot in layout.place_subjects(stage):
        result.setdefault(subject.name, []).append(spot)
    return result


@pytest.mark.parametrize(
    ("prompt", "guest", "host", "count"),
    [
        ("two kittens in a basket", "cat", "basket", 2),
        ("a basket of strawberries", "strawberry", "basket", 4),
        ("three dogs in a cardboard box", "dog", "box", 3),
        ("a duck in a bathtub", "duck", "bathtub", 1),
    ],
)
def test_object_in_a_container_is_visible_above_its_rim(
    prompt: str, guest: str, host: str, count: int
) -> None:
    result = spots(prompt)
    assert list(result) == [host, guest]
    (guest_spot,), inside = result[host], result[guest]
    assert len(inside) == count
    for spot in inside:
        assert spot.cut is not None
        assert guest_spot.foot - guest_spot.height < spot.cut < spot.foot
        assert spot.foot - spot.height < spot.cut
        assert abs(spot.x - guest_spot.x) < 0.7 * guest_spot.height
    assert len({spot.x for spot in inside}) == count


@pytest.mark.parametrize(
    ("prompt", "person", "what"),
    [
        ("a robot playing the piano", "robot", "piano"),
        ("a cat playing the piano", "cat", "piano"),
        ("a woman working on a laptop in a cafe", "woman", "laptop"),
    ],
)
def test_person_at_an_object_stands_behind_it_and_is_taller(prompt: str, person: str, what: str) -> None:
    result = spots(prompt)
    assert list(result) == [person, what]
    (worker,), (thing,) = result[person], result[what]
    assert len(spots(prompt.replace("a ", "two ", 1))[person]) == 2
    assert worker.x == thing.x
    assert worker.height > thing.height * 1.5
    assert worker.foot - worker.height > 0


@pytest.mark.parametrize(
    ("prompt", "negative"),
    [("a cat in a basket", "basket"), ("a robot playing the piano", "piano"), ("a cat in a basket", "cat")],
)
def test_subject_without_its_host_stands_alone(prompt: str, negative: str) -> None:
    stage = painter.stage_scene(
        prompt_parser.parse(prompt, negative), "ra2", 5, (240, 320), lambda _stage: None
    )
    assert [subject.name for subject, _, _ in layout.place_subjects(stage)] == [
        subject.name for subject in prompt_parser.parse(prompt, negative).subjects
    ]
    assert list(spots("portrait of a cat in a basket")) == ["cat"]


def test_two_subjects_on_a_seat_are_side_by_side() -> None:
    first, second = spots("two cats on a sofa")["cat"]
    assert first.foot == second.foot
    assert second.x - first.x > first.height * 0.3


def test_activity_sets_clothes_unless_the_prompt_names_them() -> None:
    assert {"toque": "white", "scarf": "none"}.items() <= dict(prompt_parser.parse("a chef").worn).items()
    assert dict(prompt_parser.parse("a chef with a red scarf").worn)["scarf"] == "red"
    assert dict(prompt_parser.parse("portrait of an old sailor").worn)["beard"] == "grey"
    assert prompt_parser.parse("portrait of an old sailor").subjects[0].name == "bust_man"
    plain, dressed = paint("portrait of a man"), paint("portrait of a sailor")
    assert float((dressed[10:50, 110:180].min(2) > 170).mean()) > 0.2
    assert float((np.abs(plain.astype(np.int16) - dressed).max(2) > 40).mean()) > 0.05


def test_each_part_of_work_clothes_is_drawn_with_its_color() -> None:
    library = shapes.library()
    drawn = {part.role for name in ("person", "bust_man") for part in library[name].parts}
    table = tomllib.loads(
        resources.files("sixfold.engines.image.scene").joinpath("words.toml").read_text("utf-8")
    )
    worn = {tuple(part.split(" ")) for meant in table["worn"] for part in meant.split(", ")}
    assert {role for role, _ in worn} <= drawn
    assert {color for _, color in worn} <= {*table["colour"], "none"}


@pytest.mark.parametrize(
    ("prompt", "surface", "low", "high"),
    [
        ("a red brick wall", "brick", 345, 20),
        ("a blue brick wall", "brick", 200, 260),
        ("wooden planks background", "planks", 12, 45),
    ],
)
def test_wall_fills_the_image_with_its_pattern(prompt: str, surface: str, low: float, high: float) -> None:
    scene = prompt_parser.parse(prompt)
    assert (scene.surface, scene.colors, place(prompt)) == (surface, (), "studio")
    image = paint(prompt)
    assert share(image, low, high) > 0.6
    rows, paper = pixels.gray(image).mean(1), pixels.gray(paint("a plain grey background")).mean(1)
    assert float(np.abs(np.diff(rows)).mean()) > 3 * float(np.abs(np.diff(paper)).mean())


def test_wall_in_a_place_does_not_fill_the_image() -> None:
    assert prompt_parser.parse("a cat on a brick wall in a garden").surface is None
    assert place("a fox in a garden with a red brick wall") == "garden"
    cat = paint("a cat in front of a brick wall")
    assert float(np.abs(cat.astype(np.int16) - paint("a brick wall")).max(2)[100:].mean()) > 20


@pytest.mark.parametrize(
    "prompt", ["a qwzzt on a white background", "icon of a qwzzt", "logo for my startup"]
)
def test_paper_and_tile_are_not_empty_for_unknown_subjects(prompt: str) -> None:
    scene = prompt_parser.parse(prompt)
    assert scene.strange
    assert "subjects" not in scene.recognized()
    middle = paint(prompt)[70:190, 80:210].reshape(-1, 3)
    assert float(middle.std(0).max()) > 30


def test_plain_background_is_uniform() -> None:
    assert not prompt_parser.parse("a plain white background").strange
    assert float(paint("a plain white background")[80:180].std()) < 8


@pytest.mark.parametrize("prompt", ["app icon of a camera", "a camera icon", "photo of a camera"])
def test_pictured_camera_is_a_subject(prompt: str) -> None:
    assert [subject.name for subject in prompt_parser.parse(prompt).subjects] == ["dslr"]


def test_abstract_image_has_the_named_colors() -> None:
    image = paint("abstract waves in blue and red")
    other = paint("abstract waves in green and yellow")
    assert share(image, 200, 250) > 0.15 > share(other, 200, 250)
    assert share(image, 340, 20) > 0.05 > share(other, 340, 20)


def test_klein_model_keeps_the_named_colors() -> None:
    image = paint("a yellow car on a blue background", "create_image_klein")
    assert share(image, 195, 250) > 0.5
    assert share(image, 40, 65) > 0.02


@pytest.mark.parametrize(
    ("thing", "color", "hues", "least"),
    [
        ("house on a hill at noon", "red", (340, 12), 0.015),
        ("bridge over a river at noon", "blue", (205, 250), 0.09),
        ("sailboat on a lake at noon", "red", (340, 12), 0.023),
        ("balloon over a meadow at noon", "pink", (320, 350), 0.008),
        ("lantern on a table", "purple", (255, 290), 0.004),
        ("palm on a beach at noon", "purple", (255, 290), 0.02),
        ("castle in the mountains at noon", "red", (340, 12), 0.065),
    ],
)
def test_color_changes_most_of_a_thing(thing: str, color: str, hues: tuple[int, int], least: float) -> None:
    plain, colored = (share(paint(f"a {text}"), *hues) for text in (thing, f"{color} {thing}"))
    assert colored - plain > least


def test_every_colored_role_is_a_tone_of_its_shape() -> None:
    wrong = {
        name: role
        for name, shape in shapes.library().items()
        for role in shape.colored
        if role not in shape.tones or all(part.role != role for part in shape.parts)
    }
    assert wrong == {}


def test_named_moon_is_visible_in_snow() -> None:
    skies = [paint(f"a snowy village {text}")[:100] for text in ("under a full moon", "at night")]
    # The median removes the flakes.
    with_moon, without = (int(cv2.medianBlur(sky, 7).max()) for sky in skies)
    assert with_moon > 200 > without


def test_snow_at_night_is_brighter_than_the_sky() -> None:
    image = paint("a snowy village at night").mean(axis=2)
    assert image[170:220].mean() > 1.1 * image[:100].mean()


def test_flames_of_a_campfire_shine_at_night() -> None:
    night = paint("a desert at night").max(axis=2)
    fire = paint("a campfire in a desert at night")
    warm = fire[..., 2].astype(int) - fire[..., 0]
    assert (warm > 100).mean() > 0.004
    assert fire[120:].max(axis=2).max() > 1.3 * night[120:].max()


def test_rainbow_has_its_colors_in_order() -> None:
    plain, image = (
        paint(f"a meadow at noon, clear sky{text}").astype(np.int16) for text in ("", ", with a rainbow")
    )
    change = image - plain
    column = change[:, int(np.abs(change[:140]).sum((0, 2)).argmax())]
    reddest = int((column[:, 2] - column[:, 0]).argmax())
    bluest = int((column[:, 0] - column[:, 2])[reddest:].argmax())
    # Blue is on the inner side of red.
    assert 2 < bluest < 40


@pytest.mark.parametrize(
    ("prompt", "weather", "has_rainbow", "has_moon", "ignored"),
    [
        ("a rainbow over a stormy sea", "storm", True, False, ()),
        ("a rainbow under a clear sky over a lake", "clear", True, False, ()),
        ("a rainbow over a lake", "fair", True, False, ()),
        ("湖上的彩虹", "fair", True, False, ()),
        ("a meadow without a rainbow", None, False, False, ()),
        ("a rainbow in a forest", "fair", False, False, ("rainbow",)),
        ("a rainbow cake on a table", None, False, False, ("rainbow",)),
        ("a rainbow trout in a river", None, False, False, ("rainbow", "trout")),
        ("a rainbow colored cat in a meadow", None, False, False, ("rainbow", "colored")),
        ("a snowy village in moonlight", "snow", False, True, ()),
        ("雪夜的月", None, False, True, ()),
        ("a diamond in a snowy village at night", "snow", False, False, ("diamond",)),
        ("a snowy village at night, no moon", "snow", False, False, ()),
    ],
)
def test_rainbow_and_moon_are_shown_only_if_named(
    prompt: str, weather: str | None, has_rainbow: bool, has_moon: bool, ignored: tuple[str, ...]
) -> None:
    scene = prompt_parser.parse(prompt)
    assert (scene.weather, scene.has_rainbow, scene.has_moon) == (weather, has_rainbow, has_moon)
    assert scene.words.ignored == ignored


def test_turtle_stands_on_the_beach_and_swims_in_the_sea() -> None:
    feet: dict[str, float] = {}
    for place in ("on the beach", "in the sea"):
        scene = prompt_parser.parse(f"a turtle {place}")
        stage = painter.stage_scene(scene, "ra2", 7, (256, 288), lambda _: None)
        feet[place] = next(iter(layout.place_subjects(stage)))[2].foot
    assert feet["on the beach"] > 1.2 * feet["in the sea"]
