"""A film's project: tracks of clips over time, checked once and read ever after.

`check` gives the project complete, as plain JSON, so that it can be kept, priced and sent to a worker; there
`read` makes values of it. Later tracks lie on top. Times are seconds, places are project pixels from the top
left. The file of a clip is known to a run by `name_of` its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

import msgspec

from sixfold.core.catalog import css_colors, inputs
from sixfold.core.catalog.inputs import Descriptor
from sixfold.errors import InvalidInput, Problem

KIND = "timeline"
MOST_SECONDS = 600.0
MOST_TRACKS = 32
MOST_CLIPS = 256
STILL_SECONDS = 5.0  # of a picture or a text that does not say how long it stands
_MOST_TOLD = 20
_TOUCHING = 1e-3
_FILE_SECONDS = 1800

Kind = Literal["video", "image", "text", "audio"]
KINDS: tuple[Kind, ...] = ("video", "image", "text", "audio")
FILMED = frozenset({"video", "audio"})  # what has a length of its own


def _number(name: str, description: str, low: float, high: float, default: Any = None) -> Descriptor:
    return Descriptor(name, "number", description, default, min=low, max=high)


PROJECT = (
    Descriptor("width", "integer", "Pixels across", 1280, min=16, max=3840),
    Descriptor("height", "integer", "Pixels down", 720, min=16, max=3840),
    _number("fps", "Frames a second", 1, 60, 30),
    Descriptor("background", "string", "What lies behind all: a colour", "black", max_chars=40),
)
STYLE = (
    _number("font_size", "Pixels; a fifteenth of the height when omitted", 4, 1000),
    Descriptor("color", "string", "Of the letters", "white", max_chars=40),
    Descriptor("align", "string", "Of the lines in their box", choices=("left", "center", "right")),
    Descriptor("background", "string", "A colour behind the lines", max_chars=40),
)
TRANSITION = (
    Descriptor("type", "string", "How it comes", required=True, choices=("crossfade", "wipe", "slide")),
    _number("duration", "Seconds that it takes", 0.01, 60, 0.5),
)
CLIP = (
    _number("start", "Second at which it begins", 0, MOST_SECONDS, 0),
    _number("duration", "Seconds; 5 for a picture or text, else the file's rest", 0.01, MOST_SECONDS),
    _number("trim_start", "Seconds of the file that are left out", 0, _FILE_SECONDS, 0),
    _number("speed", "2 is twice as fast", 0.1, 16, 1),
    _number("x", "Left edge of its box", -7680, 7680),
    _number("y", "Upper edge of its box", -7680, 7680),
    _number("width", "Of its box; the rest of the frame when omitted", 1, 7680),
    _number("height", "Of its box; the rest of the frame when omitted", 1, 7680),
    Descriptor("fit", "string", "Into its box", "contain", choices=("contain", "cover", "fill")),
    _number("opacity", "0 is nothing, 1 all", 0, 1, 1),
    _number("rotation", "Degrees clockwise about the middle of its box", -36000, 36000, 0),
    _number("volume", "Of its sound; 1 is as it is", 0, 8, 1),
    _number("fade_in", "Seconds", 0, MOST_SECONDS, 0),
    _number("fade_out", "Seconds", 0, MOST_SECONDS, 0),
)
TEXT = Descriptor("text", "string", "What a text says", required=True, max_chars=2000)
URL = Descriptor("url", "file", "Where the file lies", required=True)
_COLOURS = frozenset({"background", "color"})


class Style(msgspec.Struct, frozen=True):
    """How a text looks."""

    color: str = "white"
    font_size: float | None = None
    align: str | None = None
    background: str | None = None


class Transition(msgspec.Struct, frozen=True):
    """How a clip takes over from the one before it on its track."""

    type: Literal["crossfade", "wipe", "slide"]
    duration: float


class Clip(msgspec.Struct, frozen=True):
    """One clip, complete."""

    start: float
    duration: float
    trim_start: float
    speed: float
    fit: Literal["contain", "cover", "fill"]
    opacity: float
    rotation: float
    volume: float
    fade_in: float
    fade_out: float
    x: float | None = None
    y: float | None = None
    width: float | None = None
    height: float | None = None
    text: str = ""
    style: Style = Style()
    transition: Transition | None = None

    @property
    def end(self) -> float:
        """The second at which it is over."""
        return self.start + self.duration


class Track(msgspec.Struct, frozen=True):
    """Clips of one kind, in the order in which they begin."""

    type: Kind
    clips: tuple[Clip, ...]


class Project(msgspec.Struct, frozen=True):
    """All of it."""

    width: int
    height: int
    fps: float
    background: str
    tracks: tuple[Track, ...]


# -- checking --------------------------------------------------------------------------------------


def check(given: Mapping[str, Any]) -> dict[str, Any]:
    """The project, complete but for the lengths that only its files know; raises `InvalidInput`.

    Every problem is named by its place: `tracks[1].clips[0]: start must be from 0 to 600`.
    """
    problems: list[Problem] = []
    checked = _checked(PROJECT, given, "", problems)
    tracks = [
        _track(track, f"tracks[{at}]", problems)
        for at, track in enumerate(_list(given.get("tracks"), "tracks", MOST_TRACKS, problems))
    ]
    count = sum(len(track["clips"]) for track in tracks)
    if not problems and not 0 < count <= MOST_CLIPS:
        problems.append(_problem("", f"must have 1 to {MOST_CLIPS} clips"))
    project = {**checked, "tracks": tracks}
    if not problems and seconds(project) > MOST_SECONDS:
        problems.append(_too_long(project))
    if problems:
        raise InvalidInput(problems[:_MOST_TOLD])
    return project


def _problem(path: str, message: str, name: str = "") -> Problem:
    place = ".".join(part for part in ("project", path, name) if part)
    return Problem(place, f"{path}: {message}" if path else f"project {message}", KIND)


def _too_long(project: Mapping[str, Any]) -> Problem:
    return _problem("", f"lasts {seconds(project):g} seconds, and {MOST_SECONDS:g} are the most")


def _list(given: Any, path: str, most: int, problems: list[Problem]) -> list[Any]:
    items = cast("list[Any]", given) if isinstance(given, list) else None
    if items is None:
        problems.append(_problem(path, "must be a list"))
    elif len(items) > most:
        problems.append(_problem(path, f"must be at most {most}"))
    else:
        return items
    return []


def _object(given: Any, path: str, problems: list[Problem]) -> Mapping[str, Any] | None:
    if isinstance(given, Mapping):
        return cast("Mapping[str, Any]", given)
    problems.append(_problem(path, "must be an object"))
    return None


def _checked(
    rows: tuple[Descriptor, ...], given: Mapping[str, Any], path: str, problems: list[Problem]
) -> dict[str, Any]:
    try:
        found = inputs.check(rows, given)
    except InvalidInput as error:
        problems.extend(_problem(path, problem.message, problem.input) for problem in error.problems)
        return {}
    for name in _COLOURS & found.keys():
        if css_colors.rgba(str(found[name])) is None:
            problems.append(_problem(path, f"{name} must be a colour such as #ffcc00", name))
    return found


def _track(given: Any, path: str, problems: list[Problem]) -> dict[str, Any]:
    track = _object(given, path, problems)
    if track is None:
        return {"type": "text", "clips": []}
    kind = track.get("type")
    if kind not in KINDS:
        problems.append(_problem(path, f"type must be one of {', '.join(KINDS)}", "type"))
        return {"type": "text", "clips": []}
    clips = [
        _clip(clip, kind, f"{path}.clips[{at}]", problems)
        for at, clip in enumerate(_list(track.get("clips"), f"{path}.clips", MOST_CLIPS, problems))
    ]
    return {"type": kind, "clips": clips}


def _clip(given: Any, kind: str, path: str, problems: list[Problem]) -> dict[str, Any]:
    said = _object(given, path, problems)
    if said is None:
        return {}
    before = len(problems)
    own = TEXT if kind == "text" else URL
    clip = _checked((own, *CLIP), said, path, problems)
    for name, rows in (("style", STYLE), ("transition", TRANSITION)):
        if said.get(name) is not None:
            inner = _object(said[name], f"{path}.{name}", problems)
            clip[name] = _checked(rows, inner or {}, f"{path}.{name}", problems)
    if len(problems) == before and kind not in FILMED:
        clip.setdefault("duration", STILL_SECONDS)
    return clip


# -- what a checked project says -------------------------------------------------------------------


def seconds(project: Mapping[str, Any]) -> float:
    """How long the film is: to the end of the last clip whose length is known."""
    ends = [clip["start"] + clip.get("duration", 0) for _, _, clip in _clips(project)]
    return round(max(ends, default=0.0), 6)


def name_of(track: int, clip: int) -> str:
    """By what name a run knows the file of a clip."""
    return f"tracks.{track}.clips.{clip}"


def place_of(name: str) -> str:
    """The same name as people read it: `tracks[1].clips[0]`."""
    _, track, _, clip = name.split(".")
    return f"tracks[{track}].clips[{clip}]"


def filed(project: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every clip that has a file, and its name."""
    return [(name, clip) for name, kind, clip in _clips(project) if kind != "text"]


def media(project: Mapping[str, Any]) -> dict[str, Descriptor]:
    """The descriptor of each clip's file by its name."""
    return {name: Descriptor(place_of(name), kind) for name, kind, _ in _clips(project) if kind != "text"}


def urls(project: Mapping[str, Any]) -> dict[str, str]:
    """Where each clip's file lies, by its name."""
    return {name: str(clip["url"]) for name, clip in filed(project)}


def measured(project: Mapping[str, Any], lengths: Mapping[str, float | None]) -> dict[str, Any]:
    """The project with each length that was left to a file, by the clip's name; raises `InvalidInput`."""
    problems: list[Problem] = []
    tracks = [{**track, "clips": [dict(clip) for clip in track["clips"]]} for track in project["tracks"]]
    whole = {**project, "tracks": tracks}
    for name, kind, clip in _clips(whole):
        length = lengths.get(name) if kind in FILMED else None
        if length is None:
            if "duration" not in clip:
                problems.append(_problem(place_of(name), "duration is required: the file tells none"))
        elif clip["trim_start"] >= length:
            problems.append(_problem(place_of(name), f"trim_start is beyond its {length:g} seconds"))
        else:
            clip.setdefault("duration", round((length - clip["trim_start"]) / clip["speed"], 6))
    if not problems and seconds(whole) > MOST_SECONDS:
        problems.append(_too_long(whole))
    if problems:
        raise InvalidInput(problems[:_MOST_TOLD])
    return whole


def bare(project: Mapping[str, Any]) -> dict[str, Any]:
    """The project as a run gets it: its files come beside it, under their names."""
    tracks = [
        {**track, "clips": [{key: clip[key] for key in clip if key != "url"} for clip in track["clips"]]}
        for track in project["tracks"]
    ]
    return {**project, "tracks": tracks}


def read(project: Mapping[str, Any]) -> Project:
    """A checked and measured project as values."""
    return msgspec.convert(project, Project, strict=False)


def _clips(project: Mapping[str, Any]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    for at, track in enumerate(project["tracks"]):
        for number, clip in enumerate(track["clips"]):
            yield name_of(at, number), track["type"], clip


def before(track: Track, clip: Clip) -> Clip | None:
    """The clip that `clip` takes over from: one on its track that began earlier and reaches it."""
    earlier = [
        other
        for other in track.clips
        if other is not clip and other.start <= clip.start and other.end >= clip.start - _TOUCHING
    ]
    earlier = [other for other in earlier if (other.start, other.end) < (clip.start, clip.end)]
    return max(earlier, key=lambda other: (other.start, other.end), default=None)
