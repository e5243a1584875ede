"""Composition of a scene, and the position of every subject."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from sixfold.engines.image.scene import interiors, noise, prompt_relations, shapes, subjects
from sixfold.engines.image.scene.prompt_parser import ParsedScene, SceneSubject
from sixfold.engines.image.scene.stage import SceneStage, StageLayout
from sixfold.engines.image.scene.words import place_choice

_SMALL = {"forest": 1.05, "interior": 1.25, "city": 0.9, "studio": 1.55, "street": 1.1}
# Size and largest distance of copies on one level, by their number.
_SHARE = {1: 1.0, 2: 0.92, 3: 0.80, 4: 0.68, 5: 0.60, 6: 0.56, 7: 0.52}
_APART = {2: 0.36, 3: 0.30}
_CLOSE = ("together", "next to", "beside", "hugging", "kissing", "side by side", "near", "with a", "juntos")
_SEATS = {
    "chair": 0.56, "sofa": 0.64, "bed": 0.56, "book": 0.62, "mushroom": 0.9, "house": 0.9, "tower": 1.1,
    "tree": 0.52, "flower": 0.62,
}  # fmt: skip
# Height of a container's opening, and height of a worker, relative to the object's height.
_MOUTHS = {"basket": 0.52, "box": 0.56, "bathtub": 0.56, "cup": 0.54}
_STATIONS = {"piano": 1.75, "stove": 2.2, "stall": 0.98, "laptop": 1.75}
_WORKERS = prompt_relations.PEOPLE | {"robot"}
_MOUNTS = {
    "horse": 0.52, "camel": 0.62, "elephant": 0.78, "dragon": 0.5, "bicycle": 0.70, "motorcycle": 0.62,
    "lion": 0.55, "tiger": 0.55, "bear": 0.6, "wolf": 0.55, "deer": 0.5, "cow": 0.6, "turtle": 0.7,
    "whale": 0.8, "dolphin": 0.7, "duck": 0.55, "eagle": 0.5, "dog": 0.5, "fox": 0.5,
}  # fmt: skip

# Places in which a subject that can come ashore swims.
_WATERS = ("sea", "lake", "river", "harbour", "underwater")

# Plants are scattered irregularly.
_GROWN = ("tree", "palm", "cactus", "flower", "mushroom")

Placed = tuple[SceneSubject, int, subjects.SubjectSpot]


def _level(subject: SceneSubject) -> int:
    """Return 0 for flying or swimming subjects, 1 for plants and 2 for others, in painting order."""
    if shapes.library()[subject.name].stand in ("sky", "under", "wall", "back"):
        return 0
    return 1 if subject.name in _GROWN else 2


def _aspect(subject: SceneSubject) -> float:
    """Return the width of a subject relative to its height."""
    columns = np.concatenate([part.outline[:, 0] for part in shapes.library()[subject.name].parts])
    return max(0.1, float(columns.max() - columns.min()) / 100)


def _tall(stage: SceneStage, subject: SceneSubject, share: float) -> float:
    shape = shapes.library()[subject.name]
    size = shape.size * _SMALL.get(stage.place, 1.0)
    if stage.place == "studio":
        size = min(size, 0.66 if stage.scene.frame == "icon" else 0.72)
    if stage.scene.frame == "portrait":
        size = max(shape.size, 0.84)
    elif stage.scene.frame == "icon":
        size = min(0.52, max(size, 0.44))
        size = min(size, 0.62 / _aspect(subject))
        return size * share * min(stage.shape)
    return min(size * share * stage.height, size * share * stage.width * 1.25)


def _foot(stage: SceneStage, subject: SceneSubject, tall: float) -> float:
    """Return the row of a subject's foot, as a fraction of the image's height."""
    shape = shapes.library()[subject.name]
    if stage.scene.frame == "portrait":
        return 1.01 if shape.stand == "frame" else 0.98
    if stage.scene.frame == "icon":
        return 0.5 + tall / stage.height / 2 - (0.05 if stage.scene.letters else 0.0)
    if stage.place in ("space", "underwater") and shape.stand != "table":
        return 0.70
    if stage.place == "studio":
        return 0.5 + tall / stage.height / 2 if shape.stand in ("sky", "under") else stage.ground
    if shape.stand == "sky":
        return 0.26 + shape.size * 0.6
    if shape.ashore and stage.place not in _WATERS:
        return stage.ground
    feet = {"under": 0.62, "wall": 0.62, "back": 0.78, "water": stage.layout.horizon + 0.17, "table": 0.90}
    return feet.get(shape.stand, stage.ground)


def _across(stage: SceneStage, count: int, at: int, are_close: bool) -> float:
    """Return the horizontal position of copy `at` of `count` on one level."""
    if count == 1:
        return stage.layout.subject_x
    apart = _APART.get(count, 0.80 / (count - 1)) * (0.62 if are_close and count == 2 else 1.0)
    middle = 0.5 if count > 2 or stage.place == "studio" else 0.5 + (stage.layout.subject_x - 0.5) * 0.4
    return middle + (at - (count - 1) / 2) * apart


def _beside_someone(stage: SceneStage) -> bool:
    """Return whether the image contains a person, beside whom objects on tables are smaller."""
    guest = _guest(stage)
    return any(shapes.library()[s.name].stand == "ground" and s.name != guest for s in stage.scene.subjects)


def _guest(stage: SceneStage) -> str | None:
    """Return the subject that is placed inside another subject or behind its workplace, or None."""
    if stage.scene.link is None:
        return None
    how, subject, host = stage.scene.link
    hosts = _MOUTHS if how == "in" else _STATIONS
    if how == "on" and subject not in _WORKERS:
        return None
    there = {s.name for s in stage.scene.subjects} - stage.scene.avoid
    return subject if host in hosts and {subject, host} <= there else None


def _one(
    stage: SceneStage, subject: SceneSubject, number: int, level: tuple[int, int, bool]
) -> subjects.SubjectSpot:
    count, at, close = level
    rng = stage.rng(f"{subject.name}{number}")
    share = _SHARE.get(count, 0.45)
    if count > 1:
        share *= float(rng.uniform(0.92, 1.04))
    kind = shapes.library()[subject.name].stand
    tall = _tall(stage, subject, share)
    if kind == "table" and subject.name not in interiors.FURNITURE and _beside_someone(stage):
        tall *= 0.6
    max_width = 0.86 if count == 1 else 1.12 * _APART.get(count, 0.80 / (count - 1))
    tall = min(tall, max_width * stage.width / max(0.3, _aspect(subject)))
    foot, x = _foot(stage, subject, tall), _across(stage, count, at, close)
    if count > 1 and kind in ("sky", "under"):
        foot += (-0.10 if at % 2 else 0.07) + float(rng.uniform(-0.03, 0.03))
    elif count > 1 and subject.name in _GROWN:
        grown = float(rng.uniform(0.5, 1.0)) if number else 1.0
        tall, foot = tall * grown, foot - 0.12 * (1 - grown)
        x += float(rng.uniform(-0.06, 0.06))
    elif count > 3:
        foot -= 0.07 if at % 2 else 0.0
    half = min(0.5, 0.52 * tall * _aspect(subject) / stage.width)
    x = float(np.clip(x, half, 1 - half))
    flip = x > 0.5 if (count > 1 or stage.place != "studio") and kind != "wall" else False
    return subjects.SubjectSpot(x * stage.width, foot * stage.height, tall, flip, 0.10 + 0.02 * at)


def _apply_link(stage: SceneStage, placed: list[Placed]) -> list[Placed]:
    """Place one subject on another, or in another's hand, if the prompt says so."""
    link = stage.scene.link
    by_name = {subject.name: (subject, number, spot) for subject, number, spot in reversed(placed)}
    if link is None or link[1] not in by_name or link[2] not in by_name:
        return placed
    how, upper, lower = link
    perched = how == "on" or (how == "in" and lower in _GROWN)
    if how != "hold" and not (perched and lower in (*_SEATS, *_MOUNTS)):
        return placed
    base, thing = by_name[lower][2], by_name[upper]
    others = [placement for placement in placed if placement[0].name not in (upper, lower)]
    if how == "hold":
        return [*others, thing, (by_name[lower][0], 0, _in_hand(thing[2], base))]
    if lower in _SEATS:
        sitting = [placement for placement in placed if placement[0].name == upper]
        return [
            *others,
            by_name[lower],
            *_side_by_side(sitting, base, (_SEATS[lower], _aspect(by_name[lower][0]))),
        ]
    seat, tall = _MOUNTS[lower], min(thing[2].height, base.height * 0.95)
    top, cut = base.foot - base.height * seat + tall * 0.38, base.foot - base.height * (seat - 0.08)
    rides = replace(thing[2], x=base.x, foot=top, height=tall, flip=base.flip, depth=base.depth, cut=cut)
    return [*others, (thing[0], thing[1], rides), by_name[lower]]


def _in_hand(person: subjects.SubjectSpot, item: subjects.SubjectSpot) -> subjects.SubjectSpot:
    """Return the position of an object in a person's hand."""
    side = -1 if person.flip else 1
    return replace(
        item,
        x=person.x + side * person.height * 0.27,
        foot=person.foot - person.height * 0.30,
        height=min(item.height, person.height * 0.42),
        depth=person.depth * 0.9,
    )


def _abreast(middle: float, width: float, count: int) -> list[float]:
    """Return the centers of `count` equal parts of a width."""
    return [middle + width * ((at + 0.5) / count - 0.5) for at in range(count)]


def _side_by_side(
    sitting: list[Placed], base: subjects.SubjectSpot, seat: tuple[float, float]
) -> list[Placed]:
    """Place subjects side by side on a seat.

    `seat` contains the height and the width of the seat relative to the furniture's height.
    """
    seated: list[Placed] = []
    for (subject, number, spot), x in zip(
        sitting, _abreast(base.x, 0.8 * base.height * seat[1], len(sitting)), strict=True
    ):
        tall = min(spot.height, base.height * 0.95)
        seated.append(
            (subject, number, replace(base, x=x, foot=base.foot - base.height * seat[0], height=tall))
        )
    return seated


def _with_host(stage: SceneStage, guest: SceneSubject, host: str, placed: list[Placed]) -> list[Placed]:
    """Place every copy of `guest` inside its container, or behind its workplace."""
    at = next(index for index, (subject, _, _) in enumerate(placed) if subject.name == host)
    holder, _, base = placed[at]
    wide = _aspect(holder)
    if host in _MOUTHS:
        return [*placed[: at + 1], *_contents(guest, base, _MOUTHS[host], wide), *placed[at + 1 :]]
    share = min(1.0, 0.74 * stage.height / (base.height * _STATIONS[host]))
    front = replace(base, height=base.height * share, flip=False)
    behind = replace(front, height=front.height * _STATIONS[host], foot=front.foot - 0.03 * front.height)
    across = _abreast(front.x, 0.9 * front.height * wide, guest.count)
    workers = [(guest, number, replace(behind, x=x)) for number, x in enumerate(across)]
    return [*placed[:at], *workers, (holder, 0, front), *placed[at + 1 :]]


def _contents(guest: SceneSubject, base: subjects.SubjectSpot, mouth: float, wide: float) -> list[Placed]:
    """Place objects side by side in the opening of a container, sunk in by a third."""
    is_flat = shapes.library()[guest.name].stand == "table"
    count = max(guest.count, 4) if is_flat and guest.count > 1 else guest.count
    cut, span = base.foot - base.height * mouth, 0.88 * base.height * wide
    tall = min(base.height * (0.55 if is_flat else 1.25), 1.3 * span / count / _aspect(guest))
    inside = replace(base, foot=cut + tall * 0.33, height=tall, cut=cut)
    return [
        (guest, number, replace(inside, x=x, flip=number % 2 == 1))
        for number, x in enumerate(_abreast(base.x, span, count))
    ]


def _would_be_empty(stage: SceneStage) -> bool:
    """Return whether a studio would be empty although the prompt names something unknown."""
    scene = stage.scene
    empty = not (scene.letters or scene.surface or scene.frame == "portrait")
    return stage.place == "studio" and scene.strange and empty


def place_subjects(stage: SceneStage) -> list[Placed]:
    """Return every copy of every subject with its position, in painting order."""
    named = _shown_subjects(stage)
    pair = _guest_and_host(stage, named)
    if pair is not None:
        named = [subject for subject in named if subject is not pair[0]]
    placed = [each for height in range(3) for each in _place_level(stage, named, height)]
    placed.sort(key=lambda each: each[2].foot)
    return _apply_link(stage, placed) if pair is None else _with_host(stage, *pair, placed)


def _shown_subjects(stage: SceneStage) -> list[SceneSubject]:
    """Return the subjects to place, without those that a portrait or the furniture replaces."""
    named = [subject for subject in stage.scene.subjects if subject.name not in stage.scene.avoid]
    if stage.scene.frame == "portrait":
        named = [SceneSubject(subject.name, 1, subject.color) for subject in named[:1]]
    if stage.notes.get("furnished"):
        named = [subject for subject in named if subject.name not in interiors.FURNITURE]
    if not named and _would_be_empty(stage):
        return [SceneSubject("solids")]
    return named


def _guest_and_host(stage: SceneStage, named: Sequence[SceneSubject]) -> tuple[SceneSubject, str] | None:
    """Return a subject and the name of the subject in or behind which it is placed, or None."""
    by_name = {subject.name: subject for subject in reversed(named)}
    guest = by_name.get(_guest(stage) or "")
    if stage.scene.link is None or guest is None or stage.scene.link[2] not in by_name:
        return None
    return guest, stage.scene.link[2]


def _place_level(stage: SceneStage, named: Sequence[SceneSubject], height: int) -> Iterator[Placed]:
    """Yield the copies of the subjects of one level, which share its width."""
    text = stage.scene.prompt.casefold()
    is_close = any(word in text for word in _CLOSE)
    copies = [(s, number) for s in named if _level(s) == height for number in range(s.count)]
    if stage.layout.flip and len({subject.name for subject, _ in copies}) > 1:
        copies.reverse()
    # A single subject of a further level stands opposite the first subject.
    is_mirrored = len(copies) == 1 and len(named) > 1 and copies[0][0] is not named[0]
    for at, (subject, number) in enumerate(copies):
        spot = _one(stage, subject, number, (len(copies), at, is_close))
        yield subject, number, replace(spot, x=stage.width - spot.x) if is_mirrored else spot


_HORIZON = {
    "mountains": 0.66, "lake": 0.58, "river": 0.60, "sea": 0.56, "beach": 0.50, "meadow": 0.58,
    "desert": 0.58, "harbour": 0.60,
    "snowfield": 0.62, "city": 0.70, "village": 0.62, "garden": 0.55, "forest": 0.62, "canyon": 0.60,
    "street": 0.56, "studio": 0.62,
    "moon": 0.64, "mars": 0.62, "volcano": 0.66, "interior": 0.62, "cave": 0.60,
}  # fmt: skip

# Height of the light above the horizon, as a fraction of the sky.
_LIGHT = {
    "day": (0.62, 0.84),
    "dawn": (0.10, 0.26),
    "sunset": (0.08, 0.24),
    "dusk": (-0.2, -0.1),
    "night": (0.55, 0.82),
}

_OPEN = ("mountains", "sea", "lake", "meadow", "beach", "desert")
# Subjects that determine the place with priority over people.
_LANDMARKS = ("bridge", "castle", "lighthouse", "windmill", "temple", "church", "ship", "train")
# Subjects that appear only in the place where they belong.
_AT_HOME = ("firetruck", "tractor", "bus", "stall", "ferris")


class SceneComposition(msgspec.Struct, frozen=True):
    """The chosen place, time, weather and layout."""

    place: str
    time: str
    weather: str
    layout: StageLayout


def _place(scene: ParsedScene, rng: np.random.Generator) -> str:
    places = [p for p in scene.places if p not in scene.avoid]
    framed = scene.frame is not None or (scene.letters and not scene.subjects)
    if (not places and framed) or (scene.frame == "icon" and (scene.subjects or scene.letters)):
        return "studio"
    homes = [h for s in scene.subjects for h in shapes.library()[s.name].home if h not in scene.avoid]
    if places:
        return place_choice.choose(places)
    if homes:
        first = [
            s
            for s in scene.subjects
            if shapes.library()[s.name].stand in shapes.INDOORS or s.name in (*_LANDMARKS, *_AT_HOME)
        ]
        return next((h for s in first for h in shapes.library()[s.name].home if h in homes), homes[0])
    options = [p for p in _OPEN if p not in scene.avoid] or ["mountains"]
    return options[int(rng.integers(len(options)))]


def _time(scene: ParsedScene, place: str, rng: np.random.Generator) -> str:
    if place == "studio" and scene.time != "night":
        return "day"
    if scene.time:
        return scene.time
    for subject in scene.subjects:
        preferred = shapes.library()[subject.name].time
        if preferred and preferred not in scene.avoid:
            return preferred
    if {"cyberpunk", "vaporwave", "noir"} & set(scene.styles) or "neon" in scene.colors:
        return "dusk" if "vaporwave" in scene.styles else "night"
    if place in ("space", "moon", "mars"):
        return "night"
    if place == "studio":
        return "day"
    options = [t for t in ("day", "day", "sunset", "dawn", "day") if t not in scene.avoid] or ["day"]
    return options[int(rng.integers(len(options)))]


def _weather(scene: ParsedScene, place: str, time: str) -> str:
    if place in ("space", "moon", "mars", "studio"):
        return "clear"
    if scene.weather:
        return scene.weather
    if time == "night":
        return "clear"
    return "clear" if "cloudy" in scene.avoid else "fair"


def compose(scene: ParsedScene, seed: int, shape: tuple[int, int]) -> SceneComposition:
    """Return the composition of a scene; details missing from the prompt are chosen by the seed."""
    rng = noise.stream(seed, "plan")
    place = _place(scene, rng) if scene.known and "abstract" not in scene.styles else "abstract"
    time = _time(scene, place, rng)
    weather = _weather(scene, place, time)
    horizon = _HORIZON.get(place, 0.60) + float(rng.uniform(-0.03, 0.03))
    if shape[0] > shape[1] * 1.2:
        horizon += 0.04
    third = (0.32, 0.68)[int(rng.integers(2))]
    low, high = _LIGHT[time]
    light_y = horizon * (1 - float(rng.uniform(low, high)))
    subject_x = float(np.clip(1 - third + rng.normal(0, 0.02), 0.25, 0.75))
    if place == "studio" or scene.frame == "portrait":
        subject_x = 0.5
    elif place == "interior":
        subject_x = 0.5 + (subject_x - 0.5) * 0.55
    layout = StageLayout(
        horizon, (third + float(rng.uniform(-0.06, 0.06)), light_y), subject_x, bool(rng.random() < 0.5)
    )
    return SceneComposition(place, time, weather, layout)
