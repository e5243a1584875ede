"""The actions of a body, and the parser of prompts into actions.

An action yields the angles of the upper body at a time; simultaneous actions are blended by weight. A prompt
is a sequence of actions: for "walk forward, then wave", the body walks for a while and then waves.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable

import msgspec

from sixfold.core.catalog.prompt_words import PromptWords
from sixfold.engines import prompt_words
from sixfold.engines.live.motion.body import Angles, angles


class ActionMoment(msgspec.Struct, frozen=True):
    """The time in seconds, the gait's phase from 0 to 1, and the speed of the body in m/s."""

    t: float
    phase: float
    speed: float


class MotionAction(msgspec.Struct, frozen=True):
    """An action: speed in m/s, turn in rad/s, duration in seconds; with `steps`, the feet always move."""

    name: str
    words: str
    speed: float = 0.0
    turn: float = 0.0
    seconds: float = 3.0
    steps: bool = False
    jumps: bool = False


ACTS = (
    MotionAction("run", r"run|runs|running|jog\w*|sprint\w*|dash\w*|race|races|rush\w*|rennt|rennen", 3.1),
    MotionAction("sneak", r"sneak\w*|creep\w*|tiptoe\w*|crouch\w*|stalk\w*|prowl\w*", 0.6),
    MotionAction("march", r"march\w*|parade\w*", 1.2),
    MotionAction("jump", r"jump\w*|hop|hops|hopping|leap\w*|skip\w*|spring\w*", seconds=1.6, jumps=True),
    MotionAction("dance", r"danc\w*|groov\w*|disco|boogie|twist\w*", steps=True, seconds=4.0),
    MotionAction("sit", r"sit|sits|sitting|seat\w*|rest|rests|resting", seconds=4.0),
    MotionAction("wave", r"wav(?:e|es|ing)|greet\w*|hello|goodbye|hail\w*"),
    MotionAction("clap", r"clap\w*|applau\w*"),
    MotionAction("cheer", r"cheer\w*|celebrat\w*|triumph\w*|victor\w*"),
    MotionAction("bow", r"bow|bows|bowing|nods? low"),
    MotionAction("point", r"point|points|pointing|reach\w*"),
    MotionAction("think", r"think\w*|ponder\w*|wonder\w*"),
    MotionAction("spin", r"spin\w*|whirl\w*|pirouett\w*", turn=3.2, seconds=2.0, steps=True),
    MotionAction("left", r"turn\w*(?: \w+)? left|left turn", turn=math.pi / 2, seconds=1.1, steps=True),
    MotionAction("right", r"turn\w*(?: \w+)? right|right turn", turn=-math.pi / 2, seconds=1.1, steps=True),
    MotionAction(
        "around",
        r"turn\w*(?: \w+)? around|turn\w* back|u-turn|turn\w*",
        turn=math.pi,
        seconds=2.2,
        steps=True,
    ),
    MotionAction("back", r"back(?:s|ing)? (?:up|away)|walk\w* back\w*|step\w* back\w*|backward\w*", -0.8),
    MotionAction(
        "walk",
        r"walk\w*|strol\w*|stroll\w*|wander\w*|step|steps|stepping|go|goes|going|mov\w+|approach\w*",
        1.3,
    ),
    MotionAction("stand", r"stand\w*|stop\w*|wait\w*|idle|still|pause\w*|halt\w*"),
)
BY_NAME = {act.name: act for act in ACTS}
_PATTERNS = tuple((act, re.compile(rf"\b(?:{act.words})\b")) for act in ACTS)
_PACES = ((re.compile(r"\bslow\w*|\bgently|\btired\w*|\bsad\w*|\bold\b"), 0.65),
          (re.compile(r"\bquick\w*|\bfast\w*|\bbrisk\w*|\bhurr\w+|\bspeed\w*"), 1.35))  # fmt: skip
_CIRCLES = re.compile(r"\bcircles?\b|\bloops?\b|\bround and round\b")
_CLAUSES = re.compile(r"\bthen\b|\bafter that\b|\bbefore\b|\bfinally\b|[,;.]|\buntil\b")
# Words that refer to the body and so count as understood.
_BODY = re.compile(r"\b(?:person|people|human|man|woman|body|figure|someone|character|forwards?)\b")
_RIGHTWARD = re.compile(r"\bright\b|\bclockwise\b")


class CurrentAction(msgspec.Struct, frozen=True):
    """A part of a prompt: simultaneous actions (walk and wave), a pace factor and a turn in rad/m."""

    acts: tuple[str, ...]
    pace: float = 1.0
    turn: float = 0.0

    @property
    def seconds(self) -> float:
        """The seconds until the next part of the prompt begins."""
        return max(BY_NAME[name].seconds for name in self.acts)


@functools.lru_cache(maxsize=256)
def parse(prompt: str) -> tuple[CurrentAction, ...]:
    """Return the actions of a prompt in order; the default is to stand."""
    parts = tuple(part for clause in _CLAUSES.split(prompt.lower()) if (part := _clause(clause)) is not None)
    if not parts:
        return (CurrentAction(("walk",) if _CIRCLES.search(prompt.lower()) else ("stand",)),)
    return parts


def words(prompt: str) -> PromptWords:
    """Return the prompt words that control the body, and the ignored words."""
    acts = {name for part in parse(prompt) for name in part.acts}
    used = [pattern for act, pattern in _PATTERNS if act.name in acts]
    paces = [pattern for pattern, _ in _PACES]
    return prompt_words.of_patterns(prompt, [*used, *paces, _CIRCLES, _CLAUSES, _RIGHTWARD, _BODY])


def _clause(clause: str) -> CurrentAction | None:
    acts: list[str] = []
    rest = clause
    for act, pattern in _PATTERNS:
        if pattern.search(rest):
            acts.append(act.name)
            rest = pattern.sub(" ", rest)
    if not acts:
        return None
    pace = math.prod(factor for pattern, factor in _PACES if pattern.search(clause))
    turn = (-0.55 if _RIGHTWARD.search(clause) else 0.55) if _CIRCLES.search(clause) else 0.0
    if turn and not any(BY_NAME[name].speed for name in acts):
        acts.append("walk")
    return CurrentAction(tuple(acts), pace, turn)


def _swing(phase: float) -> float:
    return math.sin(2 * math.pi * phase)


def _add(pose: Angles, **others: float) -> Angles:
    for name, value in others.items():
        pose[name] = pose.get(name, 0.0) + value
    return pose


def _stand(m: ActionMoment) -> Angles:
    breath, sway = math.sin(1.6 * m.t), math.sin(0.55 * m.t)
    return angles(
        pitch=0.02 + 0.012 * breath, roll=0.012 * sway, aside=0.012 * sway, down=0.004 * breath,
        look=0.16 * math.sin(0.31 * m.t) + 0.08 * math.sin(0.83 * m.t),
        nod=0.05 + 0.03 * math.sin(0.47 * m.t),
        left_out=0.13, right_out=0.13, left_elbow=0.28 + 0.02 * breath, right_elbow=0.28 + 0.02 * breath,
        left_raise=0.02, right_raise=0.02,
    )  # fmt: skip


def _gait(m: ActionMoment, *, reach: float, elbow: float, lean: float, bounce: float) -> Angles:
    swing = _swing(m.phase + 0.06)
    return angles(
        pitch=lean, yaw=0.10 * swing * reach, hip_yaw=-0.09 * swing, hip_roll=0.045 * _swing(m.phase - 0.12),
        aside=0.018 * _swing(m.phase - 0.06), roll=-0.02 * _swing(m.phase - 0.1),
        down=bounce * math.cos(4 * math.pi * (m.phase - 0.08)), nod=0.02,
        left_raise=-reach * swing, right_raise=reach * swing, left_out=0.10, right_out=0.10,
        left_elbow=elbow + 0.25 * max(0.0, -swing) * reach,
        right_elbow=elbow + 0.25 * max(0.0, swing) * reach,
        left_twist=0.15, right_twist=0.15,
    )  # fmt: skip


def _walk(m: ActionMoment) -> Angles:
    vigor = min(1.0, abs(m.speed) / 1.3)
    return _gait(
        m, reach=0.12 + 0.38 * vigor, elbow=0.22 + 0.15 * vigor, lean=0.05 * vigor, bounce=0.018 * vigor
    )


def _run(m: ActionMoment) -> Angles:
    return _gait(m, reach=0.85, elbow=1.45, lean=0.19, bounce=-0.035)


def _sneak(m: ActionMoment) -> Angles:
    bent = angles(
        down=0.20, pitch=0.42, left_elbow=1.0, right_elbow=1.0, left_raise=0.35, right_raise=0.35, nod=-0.3
    )
    return _add(bent, **_gait(m, reach=0.16, elbow=0.2, lean=0.0, bounce=0.01))


def _march(m: ActionMoment) -> Angles:
    return _gait(m, reach=0.95, elbow=0.12, lean=-0.03, bounce=0.02)


def _dance(m: ActionMoment) -> Angles:
    beat = 2 * math.pi * 1.0 * m.t
    side, lift = math.sin(beat), math.sin(beat / 2)
    return angles(
        down=0.05 + 0.04 * math.cos(2 * beat), aside=0.07 * side, hip_roll=0.16 * side, hip_yaw=0.3 * side,
        roll=-0.12 * side, yaw=-0.25 * side, nod=0.1 + 0.12 * math.cos(2 * beat), look=0.2 * lift,
        left_raise=0.9 + 0.7 * side, right_raise=0.9 - 0.7 * side, left_out=0.5, right_out=0.5,
        left_elbow=1.4 + 0.4 * math.cos(beat), right_elbow=1.4 - 0.4 * math.cos(beat),
        left_twist=0.3, right_twist=0.3,
    )  # fmt: skip


def _sit(m: ActionMoment) -> Angles:
    return _add(
        _stand(m),
        down=0.46, back=0.30, pitch=0.10, left_raise=0.55, right_raise=0.55,
        left_elbow=0.75, right_elbow=0.75, left_twist=0.2, right_twist=0.2, left_out=0.06, right_out=0.06,
    )  # fmt: skip


def _wave(m: ActionMoment) -> Angles:
    beat = math.sin(2 * math.pi * 1.7 * m.t)
    return _add(
        _stand(m),
        roll=0.05, look=-0.1, nod=-0.06, right_out=1.35, right_raise=0.35, right_elbow=1.25 + 0.1 * beat,
        right_twist=-1.7 + 0.55 * beat,
    )  # fmt: skip


def _clap(m: ActionMoment) -> Angles:
    beat = 0.5 + 0.5 * math.sin(2 * math.pi * 2.2 * m.t)
    arm = {"raise": 0.75, "out": 0.12 * beat, "elbow": 1.35, "twist": 0.70 - 0.45 * beat}
    return _add(
        _stand(m), nod=-0.03, **{f"{side}_{part}": a for side in ("left", "right") for part, a in arm.items()}
    )


def _cheer(m: ActionMoment) -> Angles:
    beat = math.sin(2 * math.pi * 1.5 * m.t)
    arm = {"raise": 2.75 + 0.15 * beat, "out": 0.35, "elbow": 0.25 + 0.2 * beat}
    return _add(
        _stand(m),
        nod=-0.2,
        down=-0.0 + 0.03 * beat,
        **{f"{side}_{part}": a for side in ("left", "right") for part, a in arm.items()},
    )


def _bow(m: ActionMoment) -> Angles:
    depth = 0.5 - 0.5 * math.cos(2 * math.pi * m.t / 3.0)
    return _add(_stand(m), pitch=0.95 * depth, back=0.16 * depth, nod=0.35 * depth)


def _point(m: ActionMoment) -> Angles:
    return _add(_stand(m), right_raise=1.5, right_out=0.1, right_elbow=-0.2, yaw=0.12, look=-0.1)


def _think(m: ActionMoment) -> Angles:
    tilt = 0.05 * math.sin(0.9 * m.t)
    return _add(
        _stand(m),
        right_raise=0.55, right_elbow=1.95, right_twist=0.45, left_raise=0.35, left_elbow=1.25,
        left_twist=1.0, nod=0.12 + tilt, look=0.15,
    )  # fmt: skip


def _jump(m: ActionMoment) -> Angles:
    return _add(_stand(m), left_elbow=0.25, right_elbow=0.25, pitch=0.06)


POSES: dict[str, Callable[[ActionMoment], Angles]] = {
    "stand": _stand, "walk": _walk, "back": _walk, "run": _run, "sneak": _sneak, "march": _march,
    "jump": _jump, "dance": _dance, "sit": _sit, "wave": _wave, "clap": _clap, "cheer": _cheer,
    "bow": _bow, "point": _point, "think": _think, "spin": _stand, "left": _stand,
    "right": _stand, "around": _stand,
}  # fmt: skip
# Combined with a gait, these actions control the arms and the chest only.
UPPER = frozenset({"wave", "clap", "cheer", "point", "think"})
