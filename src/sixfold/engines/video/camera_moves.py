"""Parser of camera moves in a prompt, and the path of camera poses that follows from them.

A pan or a tilt turns the view; a track, a crane, a dolly or an orbit moves the camera and causes parallax.
"Left" means that the camera moves left, so the image moves right.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources

import msgspec

from sixfold.core.catalog.prompt_words import NO_WORDS, PromptWords
from sixfold.engines import prompt_words
from sixfold.engines.image.scene import noise

# Numbers of characters before and after a move's name that are searched for its direction and speed.
_NEAR_BEFORE, _NEAR_AFTER = 26, 34
_USUAL_SECONDS = 5.0
# A move extends at most to this multiple of its usual reach; longer videos move more slowly instead.
_MAX_REACH = 1.45
# The fraction of a move's time for acceleration, and also for deceleration.
_EASE = 0.16
_TURNING = ("pan", "tilt", "x", "y", "z", "zoom", "roll")


class CameraPose(msgspec.Struct, frozen=True):
    """The camera's position and direction at one time.

    A point at (x, y) from the center with nearness q (0 far, 1 near) is projected to
    `zoom * rotate(roll, (x + shift_x q) / (1 - approach q)) + pan`. Shifts and pans are fractions of the
    frame width or height; `roll` is in degrees.
    """

    pan_x: float = 0.0
    pan_y: float = 0.0
    shift_x: float = 0.0
    shift_y: float = 0.0
    approach: float = 0.0
    zoom: float = 1.0
    roll: float = 0.0


class CameraMove(msgspec.Struct, frozen=True):
    """A move: name, direction, speed, and its extent in five seconds at normal speed."""

    name: str
    sign: int
    speed: float
    amounts: Mapping[str, float]

    @property
    def description(self) -> str:
        """The move as a string, such as `pan +0.6`."""
        return f"{self.name} {self.sign * self.speed:+g}"


class MovePhrase(msgspec.Struct, frozen=True):
    """Simultaneous moves."""

    moves: tuple[CameraMove, ...]


class CameraPath(msgspec.Struct, frozen=True):
    """The camera moves of a prompt; `specified` is False if the prompt does not mention the camera.

    `rest` is the prompt without the names of moves, so that a crane is not painted as a bird.
    """

    phrases: tuple[MovePhrase, ...]
    specified: bool
    rest: str = ""
    words: PromptWords = NO_WORDS

    @property
    def description(self) -> list[list[str]]:
        """The moves as strings, by phrase."""
        return [[move.description for move in phrase.moves] for phrase in self.phrases]


class _MoveRow(msgspec.Struct, frozen=True):
    name: str
    words: re.Pattern[str]
    axis: str
    bare: str
    camera: bool
    do: Mapping[str, float]


class _MoveTable(msgspec.Struct, frozen=True):
    then: re.Pattern[str]
    camera: re.Pattern[str]
    still: re.Pattern[str]
    directions: Mapping[str, tuple[int, re.Pattern[str]]]
    axes: Mapping[str, Sequence[str]]
    speeds: Sequence[tuple[re.Pattern[str], float]]
    rows: Sequence[_MoveRow]


@cache
def _table() -> _MoveTable:
    table = resources.files("sixfold.engines.video").joinpath("moves.toml")
    document = tomllib.loads(table.read_text("utf-8"))
    return _MoveTable(
        then=re.compile(document["then"]),
        camera=re.compile(document["camera"]),
        still=re.compile(document["still"]),
        directions={
            name: (sign, re.compile(words)) for name, (sign, words) in document["directions"].items()
        },
        axes=document["axes"],
        speeds=[(re.compile(words), speed) for words, speed in document["speeds"].items()],
        rows=[
            _MoveRow(
                row["name"],
                re.compile(row["words"]),
                row.get("axis", ""),
                row.get("bare", ""),
                row.get("camera", False),
                row["do"],
            )
            for row in document["move"]
        ],
    )


def parse(prompt: str, negative: str = "") -> CameraPath:
    """Return the camera moves of `prompt` without those that `negative` names."""
    table, text = _table(), prompt.casefold()
    excluded = {row.name for row in table.rows if row.words.search(negative.casefold())}
    phrases: list[MovePhrase] = []
    rest: list[str] = []
    still = False
    for part in table.then.split(text):
        if table.still.search(part):
            still = True
            phrases.append(MovePhrase(()))
            rest.append(table.still.sub(" ", part))
            continue
        found_moves = list(_moves(part))
        rest.append(_without(part, [span for _, span in found_moves]))
        moves = tuple(move for move, _ in found_moves if move.name not in excluded)
        if moves:
            phrases.append(MovePhrase(moves))
    specified = bool(phrases) or still
    words = (
        _words(prompt, {move.name for phrase in phrases for move in phrase.moves}) if specified else NO_WORDS
    )
    return CameraPath(tuple(phrases), specified, ", ".join(rest), words)


def _words(prompt: str, names: Collection[str]) -> PromptWords:
    """Return the words that name the moves, their directions and their speeds."""
    table = _table()
    moves = [row.words for row in table.rows if row.name in names]
    directions = [words for _, words in table.directions.values()]
    speeds = [words for words, _ in table.speeds]
    return prompt_words.of_patterns(prompt, [*moves, *directions, *speeds, table.camera, table.still])


def _without(part: str, spans: Sequence[tuple[int, int]]) -> str:
    characters = list(part)
    for start, end in spans:
        characters[start:end] = " " * (end - start)
    return "".join(characters)


def _moves(part: str) -> Iterator[tuple[CameraMove, tuple[int, int]]]:
    """Yield each move of a phrase and the span of its name."""
    table = _table()
    mentions_camera = bool(table.camera.search(part))
    spans: list[tuple[int, int]] = []
    done: set[str] = set()
    for row in table.rows:
        # A general word gives precedence to a specific one with the same effect.
        if row.camera and (not mentions_camera or done & row.do.keys()):
            continue
        for match in row.words.finditer(part):
            start, end = match.span()
            if any(a < end and start < b for a, b in spans):
                continue
            sign = _sign(row, part, start, end)
            if sign is None:
                continue
            spans.append((start, end))
            done |= row.do.keys()
            yield CameraMove(row.name, sign, _speed(part, start, end), row.do), (start, end)
            break


def _sign(row: _MoveRow, part: str, start: int, end: int) -> int | None:
    """Return the sign of the direction nearest to a move's name, or None if a required direction is missing.

    A direction after the name is preferred to a direction before the name.
    """
    if not row.axis:
        return 1
    table = _table()
    best: tuple[float, int] | None = None
    low, high = max(0, start - _NEAR_BEFORE), end + _NEAR_AFTER
    for name in table.axes[row.axis]:
        sign, words = table.directions[name]
        for match in words.finditer(part, low, min(len(part), high)):
            distance = match.start() - end if match.end() > end else 1.5 * (start - match.end()) + 2
            if best is None or distance < best[0]:
                best = (distance, sign)
    if best is not None:
        return best[1]
    return table.directions[row.bare][0] if row.bare else None


def _speed(part: str, start: int, end: int) -> float:
    near = part[max(0, start - _NEAR_BEFORE) : end + _NEAR_AFTER]
    return next((speed for words, speed in _table().speeds if words.search(near)), 1.0)


class MovePath:
    """The camera poses over the time of a video, from 0 to 1."""

    def __init__(self, plan: CameraPath, seconds: float, seed: int) -> None:
        phrases = plan.phrases if plan.specified else (_default_moves(seed),)
        self._parts: list[tuple[float, float, CameraMove, float]] = []
        for index, phrase in enumerate(phrases):
            begin, end = index / len(phrases), (index + 1) / len(phrases)
            length = (end - begin) * seconds
            for move in phrase.moves:
                reach = min(_MAX_REACH, move.speed * length / _USUAL_SECONDS)
                self._parts.append((begin, end, move, move.sign * reach))
        self._seconds = seconds
        self._shake = _CameraShake(seed)
        self._middle = {"pan": 0.0, "tilt": 0.0, "x": 0.0, "y": 0.0}
        self._middle = self._middles()

    def _middles(self) -> dict[str, float]:
        """Return the middle of each range of motion: a centered path needs the smallest margin."""
        sums = [self._sums(step / 64) for step in range(65)]
        return {
            name: (max(one[name] for one in sums) + min(one[name] for one in sums)) / 2
            for name in self._middle
        }

    def _sums(self, at: float) -> dict[str, float]:
        sums: dict[str, float] = dict.fromkeys((*_TURNING, "sway", "shake"), 0.0)
        for begin, end, move, reach in self._parts:
            done = _eased((at - begin) / (end - begin))
            for name, amount in move.amounts.items():
                if name in _TURNING:
                    sums[name] += amount * reach * done
                elif name == "focus":
                    sums["pan"] -= move.amounts.get("x", 0.0) * amount * reach * done
                else:
                    inside = _eased(min(1.0, 8 * (at - begin))) * (1.0 if at <= end else 0.0)
                    sums[name] = max(sums[name], amount * move.speed * inside)
        return sums

    def at(self, moment: float) -> CameraPose:
        """Return the pose at `moment`, from 0 at the start to 1 at the end."""
        sums = self._sums(moment)
        shake_x, shake_y, shake_roll = self._shake.at(moment * self._seconds, sums["sway"], sums["shake"])
        return CameraPose(
            pan_x=sums["pan"] - self._middle["pan"] + shake_x,
            pan_y=sums["tilt"] - self._middle["tilt"] + shake_y,
            shift_x=sums["x"] - self._middle["x"],
            shift_y=sums["y"] - self._middle["y"],
            approach=max(-0.6, min(0.6, sums["z"])),
            zoom=math.exp(sums["zoom"]),
            roll=sums["roll"] + shake_roll,
        )


class _CameraShake:
    """The slow sway and fast shake of a handheld camera."""

    def __init__(self, seed: int) -> None:
        rng = noise.stream(seed, "hand")
        self._waves = [
            [(float(rng.uniform(0.6, 1.5)), float(rng.uniform(0, math.tau))) for _ in range(3)]
            for _ in range(3)
        ]

    def at(self, second: float, sway: float, shake: float) -> tuple[float, float, float]:
        """Return the offsets as fractions of the frame width and height, and the roll in degrees."""
        offsets: list[float] = []
        for waves in self._waves:
            slow = sum(
                math.sin(math.tau * 0.37 * (1 + i) * rate * second + phase) / (1 + i)
                for i, (rate, phase) in enumerate(waves)
            )
            fast = sum(
                math.sin(math.tau * 3.1 * (1 + 0.6 * i) * rate * second + phase) / (1 + i)
                for i, (rate, phase) in enumerate(waves)
            )
            offsets.append(slow * sway + fast * shake)
        return offsets[0], offsets[1], offsets[2] * 30


def _eased(at: float) -> float:
    """Map a time from 0 to 1 to a position from 0 to 1 with smooth acceleration and deceleration."""
    at = min(1.0, max(0.0, at))
    top = 1 / (1 - _EASE)
    if at < _EASE:
        return top * (at / 2 - _EASE / (2 * math.pi) * math.sin(math.pi * at / _EASE))
    if at > 1 - _EASE:
        return 1 - _eased(1 - at)
    return top * (at - _EASE / 2)


def _default_moves(seed: int) -> MovePhrase:
    """Return the moves for a prompt without camera moves: a slow approach that drifts to one side."""
    sign = 1 if noise.stream(seed, "unasked").random() < 0.5 else -1
    return MovePhrase(
        (
            CameraMove("dolly", 1, 0.8, {"z": 0.16, "zoom": 0.07}),
            CameraMove("orbit", sign, 0.6, {"x": 0.11, "focus": 0.45}),
        )
    )
