"""Camera moves, read from a prompt: `slow pan left, then zoom in` becomes a path of poses.

A pan or a tilt turns the view, a track, a crane, a dolly or an orbit moves the camera, which shows as
parallax. Left means that the camera goes left, so that the picture goes right.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from sixfold.engines.image.scene import noise

_NEAR_BEFORE, _NEAR_AFTER = 26, 34  # characters around a move's name in which its direction may stand
_USUAL_SECONDS = 5.0
_MOST = 1.45  # times what a move does in five seconds: a longer film moves more slowly instead
_EASE = 0.16  # of a move's time to gather speed, and to lose it
_TURNING = ("pan", "tilt", "x", "y", "z", "zoom", "roll")


@dataclass(frozen=True, slots=True)
class CameraPose:
    """The camera at one moment: where the picture goes.

    A point at (x, y) from the middle, of nearness q (0 far, 1 near), goes to
    `zoom * turned by roll ((x + shift_x q) / (1 - approach q)) + pan`; shifts and pans are shares of the
    frame's width or height, `roll` is in degrees.
    """

    pan_x: float = 0.0
    pan_y: float = 0.0
    shift_x: float = 0.0
    shift_y: float = 0.0
    approach: float = 0.0
    zoom: float = 1.0
    roll: float = 0.0


@dataclass(frozen=True, slots=True)
class CameraMove:
    """One move: its name and direction, and how far it goes at an ordinary speed in five seconds."""

    name: str
    sign: int
    speed: float
    amounts: Mapping[str, float]

    @property
    def told(self) -> str:
        """The move in words: `pan +0.6`."""
        return f"{self.name} {self.sign * self.speed:+g}"


@dataclass(frozen=True, slots=True)
class MovePhrase:
    """Moves that go together."""

    moves: tuple[CameraMove, ...]


@dataclass(frozen=True, slots=True)
class CameraPath:
    """What a prompt asks of the camera; `asked` is false where it says nothing of it.

    `rest` is the prompt without the names of moves, in which a crane is no bird and a truck no car.
    """

    phrases: tuple[MovePhrase, ...]
    asked: bool
    rest: str = ""

    @property
    def told(self) -> list[list[str]]:
        """The plan as plain words, phrase by phrase."""
        return [[move.told for move in phrase.moves] for phrase in self.phrases]


@dataclass(frozen=True, slots=True)
class _MoveRow:
    name: str
    words: re.Pattern[str]
    axis: str
    bare: str
    camera: bool
    do: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _MoveTable:
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


def read(prompt: str, negative: str = "") -> CameraPath:
    """What `prompt` says of the camera, less the moves that `negative` names."""
    table, text = _table(), prompt.casefold()
    unwanted = {row.name for row in table.rows if row.words.search(negative.casefold())}
    phrases: list[MovePhrase] = []
    rest: list[str] = []
    still = False
    for part in table.then.split(text):
        if table.still.search(part):
            still = True
            phrases.append(MovePhrase(()))
            rest.append(table.still.sub(" ", part))
            continue
        named = list(_moves(part))
        rest.append(_without(part, [span for _, span in named]))
        found = tuple(move for move, _ in named if move.name not in unwanted)
        if found:
            phrases.append(MovePhrase(found))
    return CameraPath(tuple(phrases), bool(phrases) or still, ", ".join(rest))


def _without(part: str, spans: Sequence[tuple[int, int]]) -> str:
    """A text less some of its parts."""
    kept = list(part)
    for start, end in spans:
        kept[start:end] = " " * (end - start)
    return "".join(kept)


def _moves(part: str) -> Iterator[tuple[CameraMove, tuple[int, int]]]:
    """Each move of a phrase, and where it is named."""
    table = _table()
    speaks = bool(table.camera.search(part))
    taken: list[tuple[int, int]] = []
    done: set[str] = set()
    for row in table.rows:
        if row.camera and (not speaks or done & row.do.keys()):
            continue  # a word that is general yields to one that says the same exactly
        for found in row.words.finditer(part):
            start, end = found.span()
            if any(a < end and start < b for a, b in taken):
                continue
            sign = _sign(row, part, start, end)
            if sign is None:
                continue
            taken.append((start, end))
            done |= row.do.keys()
            yield CameraMove(row.name, sign, _speed(part, start, end), row.do), (start, end)
            break


def _sign(row: _MoveRow, part: str, start: int, end: int) -> int | None:
    """The direction nearest to a move's name, behind it first; None where the move needs one."""
    if not row.axis:
        return 1
    table = _table()
    best: tuple[float, int] | None = None
    low, high = max(0, start - _NEAR_BEFORE), end + _NEAR_AFTER
    for name in table.axes[row.axis]:
        sign, words = table.directions[name]
        for found in words.finditer(part, low, min(len(part), high)):
            distance = found.start() - end if found.end() > end else 1.5 * (start - found.end()) + 2
            if best is None or distance < best[0]:
                best = (distance, sign)
    if best is not None:
        return best[1]
    return table.directions[row.bare][0] if row.bare else None


def _speed(part: str, start: int, end: int) -> float:
    near = part[max(0, start - _NEAR_BEFORE) : end + _NEAR_AFTER]
    return next((speed for words, speed in _table().speeds if words.search(near)), 1.0)


class MovePath:
    """A plan over the time of a film: a pose at every moment from 0 to 1."""

    def __init__(self, plan: CameraPath, seconds: float, seed: int) -> None:
        phrases = plan.phrases if plan.asked else (_unasked(seed),)
        self._parts: list[tuple[float, float, CameraMove, float]] = []
        for index, phrase in enumerate(phrases):
            begins, ends = index / len(phrases), (index + 1) / len(phrases)
            lasts = (ends - begins) * seconds
            for move in phrase.moves:
                reach = min(_MOST, move.speed * lasts / _USUAL_SECONDS)
                self._parts.append((begins, ends, move, move.sign * reach))
        self._seconds = seconds
        self._shaken = _CameraShake(seed)
        self._middle = {"pan": 0.0, "tilt": 0.0, "x": 0.0, "y": 0.0}
        self._middle = self._middles()

    def _middles(self) -> dict[str, float]:
        """Half of how far the view goes each way: a path around the middle needs the least margin."""
        sums = [self._sums(step / 64) for step in range(65)]
        return {
            name: (max(one[name] for one in sums) + min(one[name] for one in sums)) / 2
            for name in self._middle
        }

    def _sums(self, at: float) -> dict[str, float]:
        sums: dict[str, float] = dict.fromkeys((*_TURNING, "sway", "shake"), 0.0)
        for begins, ends, move, reach in self._parts:
            done = _eased((at - begins) / (ends - begins))
            for name, amount in move.amounts.items():
                if name in _TURNING:
                    sums[name] += amount * reach * done
                elif name == "focus":
                    sums["pan"] -= move.amounts.get("x", 0.0) * amount * reach * done
                else:
                    inside = _eased(min(1.0, 8 * (at - begins))) * (1.0 if at <= ends else 0.0)
                    sums[name] = max(sums[name], amount * move.speed * inside)
        return sums

    def at(self, moment: float) -> CameraPose:
        """The pose at `moment`, 0 at the film's beginning and 1 at its end."""
        sums = self._sums(moment)
        shake_x, shake_y, shake_roll = self._shaken.at(moment * self._seconds, sums["sway"], sums["shake"])
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
    """How a hand holds a camera: slow swaying, and fast trembling, by seed."""

    def __init__(self, seed: int) -> None:
        rng = noise.stream(seed, "hand")
        self._waves = [
            [(float(rng.uniform(0.6, 1.5)), float(rng.uniform(0, math.tau))) for _ in range(3)]
            for _ in range(3)
        ]

    def at(self, second: float, sway: float, shake: float) -> tuple[float, float, float]:
        """Shares of the frame across and down, and degrees."""
        found: list[float] = []
        for waves in self._waves:
            slow = sum(
                math.sin(math.tau * 0.37 * (1 + i) * rate * second + phase) / (1 + i)
                for i, (rate, phase) in enumerate(waves)
            )
            fast = sum(
                math.sin(math.tau * 3.1 * (1 + 0.6 * i) * rate * second + phase) / (1 + i)
                for i, (rate, phase) in enumerate(waves)
            )
            found.append(slow * sway + fast * shake)
        return found[0], found[1], found[2] * 30


def _eased(at: float) -> float:
    """From 0 to 1: gathers speed, keeps it, loses it; its speed has no jump."""
    at = min(1.0, max(0.0, at))
    top = 1 / (1 - _EASE)
    if at < _EASE:
        return top * (at / 2 - _EASE / (2 * math.pi) * math.sin(math.pi * at / _EASE))
    if at > 1 - _EASE:
        return 1 - _eased(1 - at)
    return top * (at - _EASE / 2)


def _unasked(seed: int) -> MovePhrase:
    """What a prompt gets that says nothing of the camera: it comes slowly closer, drifting to one side."""
    sign = 1 if noise.stream(seed, "unasked").random() < 0.5 else -1
    return MovePhrase(
        (
            CameraMove("dolly", 1, 0.8, {"z": 0.16, "zoom": 0.07}),
            CameraMove("orbit", sign, 0.6, {"x": 0.11, "focus": 0.45}),
        )
    )
