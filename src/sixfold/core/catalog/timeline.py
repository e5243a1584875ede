"""A video project: tracks of clips over time, validated once.

`check` returns the complete project as plain JSON, which is stored, priced and sent to a worker; the worker
converts it to objects with `parse`. Later tracks are drawn above earlier ones. Times are in seconds;
positions are in project pixels from the top left. In a run, a clip's file has the name
`file_name(track, clip)`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from sixfold.core.catalog import css_colors, inputs
from sixfold.core.catalog.inputs import Descriptor
from sixfold.errors import InvalidInput, Problem

KIND = "timeline"
MAX_SECONDS = 600.0
MAX_TRACKS = 32
MAX_CLIPS = 256
# The default duration of an image or a text, in seconds.
STILL_SECONDS = 5.0
_MAX_PROBLEMS = 20
# Maximum number of characters without a glyph that an error lists.
_MAX_MISSING = 10
_TOUCHING = 1e-3
_FILE_SECONDS = 1800

Kind = Literal["video", "image", "text", "audio"]
KINDS: tuple[Kind, ...] = ("video", "image", "text", "audio")
# Kinds of clips whose files have a duration.
TIMED_KINDS = frozenset({"video", "audio"})


def _number(name: str, description: str, low: float, high: float, default: Any = None) -> Descriptor:
    return Descriptor(name, "number", description, default, min=low, max=high)


PROJECT = (
    Descriptor("width", "integer", "Pixels across", 1280, min=16, max=3840),
    Descriptor("height", "integer", "Pixels down", 720, min=16, max=3840),
    _number("fps", "Frames a second", 1, 60, 30),
    Descriptor("background", "string", "Background color", "black", max_chars=40),
)
STYLE = (
    _number("font_size", "Pixels; a fifteenth of the height when omitted", 4, 1000),
    Descriptor("color", "string", "Text color", "white", max_chars=40),
    Descriptor("align", "string", "Alignment of the lines in their box", choices=("left", "center", "right")),
    Descriptor("background", "string", "Background color of the lines", max_chars=40),
)
TRANSITION = (
    Descriptor("type", "string", "Transition effect", required=True, choices=("crossfade", "wipe", "slide")),
    _number("duration", "Duration in seconds", 0.01, 60, 0.5),
)
CLIP = (
    _number("start", "Second at which it begins", 0, MAX_SECONDS, 0),
    _number(
        "duration", "Seconds; by default 5 for an image or text, else the rest of the file", 0.01, MAX_SECONDS
    ),
    _number("trim_start", "Seconds of the file to skip", 0, _FILE_SECONDS, 0),
    _number("speed", "2 is twice as fast", 0.1, 16, 1),
    _number("x", "Left edge of its box", -7680, 7680),
    _number("y", "Upper edge of its box", -7680, 7680),
    _number("width", "Size of its box; the rest of the frame when omitted", 1, 7680),
    _number("height", "Size of its box; the rest of the frame when omitted", 1, 7680),
    Descriptor(
        "fit", "string", "How the clip fits into its box", "contain", choices=("contain", "cover", "fill")
    ),
    _number("opacity", "0 is transparent, 1 is opaque", 0, 1, 1),
    _number("rotation", "Degrees clockwise about the center of its box", -36000, 36000, 0),
    _number("volume", "Volume of its audio; 1 leaves it unchanged", 0, 8, 1),
    _number("fade_in", "Seconds", 0, MAX_SECONDS, 0),
    _number("fade_out", "Seconds", 0, MAX_SECONDS, 0),
)
TEXT = Descriptor("text", "string", "The text to show", required=True, max_chars=2000)
URL = Descriptor("url", "file", "URL of the file", required=True)
_COLORS = frozenset({"background", "color"})


class Style(msgspec.Struct, frozen=True):
    """The style of a text."""

    color: str = "white"
    font_size: float | None = None
    align: str | None = None
    background: str | None = None


class Transition(msgspec.Struct, frozen=True):
    """The transition from the previous clip on the track."""

    type: Literal["crossfade", "wipe", "slide"]
    duration: float


class Clip(msgspec.Struct, frozen=True):
    """One clip with all fields set."""

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
        """The second at which the clip ends."""
        return self.start + self.duration


class Track(msgspec.Struct, frozen=True):
    """The clips of one kind, ordered by start."""

    type: Kind
    clips: tuple[Clip, ...]


class Project(msgspec.Struct, frozen=True):
    """A complete video project."""

    width: int
    height: int
    fps: float
    background: str
    tracks: tuple[Track, ...]


# -- checking --------------------------------------------------------------------------------------


def problems(projects: Iterable[Mapping[str, Any]]) -> tuple[Problem, ...]:
    """Return the problems of the first invalid project."""
    try:
        for project in projects:
            check(project)
    except InvalidInput as invalid:
        return invalid.problems
    return ()


def check(project: Mapping[str, Any]) -> dict[str, Any]:
    """Return the complete project, except for durations that depend on its files; raises `InvalidInput`.

    Each problem contains its path: `tracks[1].clips[0]: start must be from 0 to 600`.
    """
    problems: list[Problem] = []
    checked = _checked(PROJECT, project, "", problems)
    rows = _list(project.get("tracks"), "tracks", MAX_TRACKS, problems)
    count = sum(map(_clip_count, rows))
    # 32 tracks with 256 clips each would take a fifth of a second to check.
    if count > MAX_CLIPS:
        problems.append(_problem("", f"must have 1 to {MAX_CLIPS} clips in total (got {count:,})"))
        rows = []
    tracks = [_track(track, f"tracks[{at}]", problems) for at, track in enumerate(rows)]
    if not problems and not count:
        problems.append(_problem("", f"must have 1 to {MAX_CLIPS} clips in total"))
    complete = {**checked, "tracks": tracks}
    if not problems and seconds(complete) > MAX_SECONDS:
        problems.append(_too_long(complete))
    if problems:
        raise InvalidInput(problems[:_MAX_PROBLEMS])
    return complete


def _problem(path: str, message: str, name: str = "") -> Problem:
    place = ".".join(part for part in ("project", path, name) if part)
    return Problem(place, f"{path}: {message}" if path else f"project {message}", KIND)


def _too_long(project: Mapping[str, Any]) -> Problem:
    return _problem("", f"must be at most {MAX_SECONDS:g} seconds (got {seconds(project):g})")


def _list(value: Any, path: str, limit: int, problems: list[Problem]) -> list[Any]:
    items = cast("list[Any]", value) if isinstance(value, list) else None
    if items is None:
        problems.append(_problem(path, "must be a list"))
    elif len(items) > limit:
        problems.append(_problem(path, f"must be at most {limit}"))
    else:
        return items
    return []


def _clip_count(track: Any) -> int:
    clips = cast("Mapping[str, Any]", track).get("clips") if isinstance(track, Mapping) else None
    return len(cast("list[Any]", clips)) if isinstance(clips, list) else 0


def _object(value: Any, path: str, problems: list[Problem]) -> Mapping[str, Any] | None:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    problems.append(_problem(path, "must be an object"))
    return None


def _checked(
    rows: tuple[Descriptor, ...], value: Mapping[str, Any], path: str, problems: list[Problem]
) -> dict[str, Any]:
    try:
        checked = inputs.check(rows, value)
    except InvalidInput as error:
        problems.extend(_problem(path, problem.message, problem.input) for problem in error.problems)
        return {}
    for name in _COLORS & checked.keys():
        if css_colors.rgba(str(checked[name])) is None:
            problems.append(_problem(path, f"{name} must be a color such as #ffcc00", name))
    return checked


def _track(value: Any, path: str, problems: list[Problem]) -> dict[str, Any]:
    track = _object(value, path, problems)
    if track is None:
        return {"type": "text", "clips": []}
    kind = track.get("type")
    if kind not in KINDS:
        problems.append(_problem(path, f"type must be one of {', '.join(KINDS)}", "type"))
        return {"type": "text", "clips": []}
    clips = [
        _clip(clip, kind, f"{path}.clips[{at}]", problems)
        for at, clip in enumerate(_list(track.get("clips"), f"{path}.clips", MAX_CLIPS, problems))
    ]
    return {"type": kind, "clips": clips}


def _clip(value: Any, kind: str, path: str, problems: list[Problem]) -> dict[str, Any]:
    fields = _object(value, path, problems)
    if fields is None:
        return {}
    problem_count = len(problems)
    required = TEXT if kind == "text" else URL
    clip = _checked((required, *CLIP), fields, path, problems)
    for name, rows in (("style", STYLE), ("transition", TRANSITION)):
        if fields.get(name) is not None:
            inner = _object(fields[name], f"{path}.{name}", problems)
            clip[name] = _checked(rows, inner or {}, f"{path}.{name}", problems)
    if len(problems) == problem_count and kind not in TIMED_KINDS:
        clip.setdefault("duration", STILL_SECONDS)
    return clip


# -- reading a checked project ---------------------------------------------------------------------


def seconds(project: Mapping[str, Any]) -> float:
    """Return the duration of the video in seconds: the end of the last clip with a known duration."""
    ends = [clip["start"] + clip.get("duration", 0) for _, _, clip in _clips(project)]
    return round(max(ends, default=0.0), 6)


def file_name(track: int, clip: int) -> str:
    """Return the name of a clip's file within a run."""
    return f"tracks.{track}.clips.{clip}"


def clip_path(name: str) -> str:
    """Return the path of a clip for messages: `tracks[1].clips[0]`."""
    _, track, _, clip = name.split(".")
    return f"tracks[{track}].clips[{clip}]"


def clips_with_file(project: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and the clip of each clip that has a file."""
    return [(name, clip) for name, kind, clip in _clips(project) if kind != "text"]


def media(project: Mapping[str, Any]) -> dict[str, Descriptor]:
    """Return the descriptor of each clip's file, by file name."""
    return {name: Descriptor(clip_path(name), kind) for name, kind, _ in _clips(project) if kind != "text"}


def urls(project: Mapping[str, Any]) -> dict[str, str]:
    """Return the URL of each clip's file, by file name."""
    return {name: str(clip["url"]) for name, clip in clips_with_file(project)}


def with_durations(project: Mapping[str, Any], lengths: Mapping[str, float | None]) -> dict[str, Any]:
    """Return the project with the durations of its files, given by clip name; raises `InvalidInput`."""
    problems: list[Problem] = []
    tracks = [{**track, "clips": [dict(clip) for clip in track["clips"]]} for track in project["tracks"]]
    document = {**project, "tracks": tracks}
    for name, kind, clip in _clips(document):
        length = lengths.get(name) if kind in TIMED_KINDS else None
        if length is None:
            if "duration" not in clip:
                problems.append(
                    _problem(clip_path(name), "duration is required because the file does not state it")
                )
        elif clip["trim_start"] >= length:
            problems.append(
                _problem(
                    clip_path(name),
                    f"trim_start must be less than the length of the file, {length:g} seconds",
                )
            )
        else:
            clip.setdefault("duration", round((length - clip["trim_start"]) / clip["speed"], 6))
    if not problems and seconds(document) > MAX_SECONDS:
        problems.append(_too_long(document))
    if problems:
        raise InvalidInput(problems[:_MAX_PROBLEMS])
    return document


def check_glyphs(project: Mapping[str, Any], missing: Callable[[str], Sequence[str]]) -> None:
    """Raise `InvalidInput` if texts contain characters that `missing` returns; the first ten are listed."""
    texts = [(name, str(clip["text"])) for name, kind, clip in _clips(project) if kind == "text"]
    lacking = [(clip_path(name), letters) for name, text in texts if (letters := missing(text))]
    problems: list[str] = []
    remaining = _MAX_MISSING
    for path, letters in lacking:
        listed_letters = ", ".join(map(_code_point, letters[:remaining]))
        if listed_letters:
            problems.append(
                f"{path}: text contains characters that are not in any font on this server: {listed_letters}"
            )
        remaining -= len(letters[:remaining])
    if problems:
        unlisted = sum(len(letters) for _, letters in lacking) - (_MAX_MISSING - remaining)
        problems[-1] += f", and {unlisted} more" if unlisted else ""
        problems[-1] += (
            "; remove them, or install an outline font that contains them on the server, such as Debian's "
            "fonts-noto-cjk for Chinese, Japanese and Korean, and restart it"
        )
        raise InvalidInput([Problem("project", problem, KIND) for problem in problems])


def _code_point(letter: str) -> str:
    """Return a character for a message: its code point, and the character itself if it is visible alone."""
    alone = letter.isprintable() and not unicodedata.combining(letter)
    return f"U+{ord(letter):04X} {letter}" if alone else f"U+{ord(letter):04X}"


def without_urls(project: Mapping[str, Any]) -> dict[str, Any]:
    """Return the project without URLs, in the form that a run receives; its files are passed by name."""
    tracks = [
        {**track, "clips": [{key: clip[key] for key in clip if key != "url"} for clip in track["clips"]]}
        for track in project["tracks"]
    ]
    return {**project, "tracks": tracks}


def parse(project: Mapping[str, Any]) -> Project:
    """Convert a validated project, with the durations of its clips, to objects."""
    return msgspec.convert(project, Project, strict=False)


def _clips(project: Mapping[str, Any]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    for at, track in enumerate(project["tracks"]):
        for number, clip in enumerate(track["clips"]):
            yield file_name(at, number), track["type"], clip


def previous_clip(track: Track, clip: Clip) -> Clip | None:
    """Return the earlier clip on the track that extends to the start of `clip`, or None."""
    earlier = [
        other
        for other in track.clips
        if other is not clip and other.start <= clip.start and other.end >= clip.start - _TOUCHING
    ]
    earlier = [other for other in earlier if (other.start, other.end) < (clip.start, clip.end)]
    return max(earlier, key=lambda other: (other.start, other.end), default=None)
