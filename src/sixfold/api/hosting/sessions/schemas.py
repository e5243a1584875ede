"""A session as it is told, and the words of its websocket."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, TypedDict, cast
from urllib.parse import quote

import msgspec

from sixfold import errors
from sixfold.core import json_decoding, money
from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.catalog.engines import Quality
from sixfold.core.clock import SECOND_US, rfc3339
from sixfold.core.sessions import connection as words
from sixfold.core.sessions.engine import MAX_WAYPOINTS
from sixfold.core.sessions.repository import OpenedSession, SessionRecord
from sixfold.core.sessions.runner import SessionInput
from sixfold.core.sessions.service import MAX_FPS
from sixfold.core.sessions.states import SessionState

PATH = "/api/containers/sessions"
SOCKET = "/ws/containers/sessions"
MAX_MESSAGE = 64 * 1024
MAX_PROMPT = 4000
_MAX_SEQ = 2**53
_MAX_KEYS = 16
_MAX_METRES = 100_000.0
_Plain = (
    words.StateMessage
    | words.AckMessage
    | words.FrameMessage
    | words.StatsMessage
    | words.PongMessage
    | words.ErrorMessage
)
_encode = msgspec.json.Encoder().encode
_decode = json_decoding.decode_whole


class SessionBodySchema(TypedDict, total=False):
    """The inputs of a session, and how many frames a second it shows."""

    input: dict[str, Any] | None
    fps: Annotated[int | None, msgspec.Meta(extra_json_schema={"minimum": 1, "maximum": MAX_FPS})]


_Address = Annotated[str, msgspec.Meta(description="where to open the websocket, with its token")]
_Idle = Annotated[float, msgspec.Meta(description="how long a session without input stays")]


class OpenedSessionSchema(TypedDict):
    """A session that starts, with its tokens."""

    session_id: str
    status: SessionState
    ws_url: _Address
    resume_token: Annotated[str, msgspec.Meta(description="replaces the token when a client comes back")]
    hardware: str
    idle_seconds: _Idle
    created_at: str


class SessionSchema(TypedDict):
    """A live model over a websocket."""

    session_id: str
    model: str
    status: SessionState
    reason: str | None
    ws_url: _Address
    input: Mapping[str, Any]
    fps: int
    hardware: str
    engine: str
    quality: Quality
    idle_seconds: _Idle
    created_at: str
    ready_at: str | None
    closed_at: str | None
    price_hour_usd: str
    cost: Annotated[str, msgspec.Meta(description="USD as decimal text, so far")]
    list_price_hour_usd: NotRequired[
        Annotated[str, msgspec.Meta(description="The hour's list price, where it is free")]
    ]


@dataclass(frozen=True, slots=True)
class SessionBody:
    """The body that asks for a session."""

    inputs: dict[str, Any]
    fps: int | None


def wanted(body: dict[str, Any]) -> SessionBody:
    """That body; raises `InvalidInput` with every problem."""
    problems: list[errors.Problem] = []
    given: object = {} if body.get("input") is None else body["input"]
    fps: object = body.get("fps")
    if not isinstance(given, dict):
        problems.append(errors.Problem("input", "input must be an object", "dict_type"))
    if fps is not None and (isinstance(fps, bool) or not isinstance(fps, int) or not 1 <= fps <= MAX_FPS):
        sentence = f"fps must be a whole number from 1 to {MAX_FPS}"
        problems.append(errors.Problem("fps", sentence, "out_of_range"))
    if problems:
        raise errors.InvalidInput(problems)
    return SessionBody(cast("dict[str, Any]", given), cast("int | None", fps))


def session(record: SessionRecord, base_url: str) -> SessionSchema:
    """The record of a session, without its secrets."""
    shown: SessionSchema = {
        "session_id": record.id,
        "model": record.model,
        "status": record.state,
        "reason": record.reason,
        "ws_url": f"ws{base_url.removeprefix('http')}{SOCKET}/{record.id}",
        "input": record.inputs,
        "fps": record.fps,
        "hardware": record.hardware,
        "engine": engine_name(record.engine),
        "quality": cast("Quality", record.quality),
        "idle_seconds": _seconds(record.idle_us),
        "created_at": rfc3339(record.created_at),
        "ready_at": rfc3339(record.ready_at),
        "closed_at": rfc3339(record.closed_at),
        "price_hour_usd": money.format_usd(record.rate),
        "cost": money.format_usd(record.cost),
    }
    if record.list_rate is not None:
        shown["list_price_hour_usd"] = money.format_usd(record.list_rate)
    return shown


def opened(new: OpenedSession, base_url: str) -> OpenedSessionSchema:
    """The answer to who asked for it: the only time that its tokens are told."""
    told = session(new.session, base_url)
    return {
        "session_id": told["session_id"],
        "status": told["status"],
        "ws_url": f"{told['ws_url']}?token={quote(new.token)}",
        "resume_token": new.resume_token,
        "hardware": told["hardware"],
        "idle_seconds": told["idle_seconds"],
        "created_at": told["created_at"],
    }


def _seconds(us: int) -> int | float:
    return us // SECOND_US if us % SECOND_US == 0 else us / SECOND_US


# -- what a client says ----------------------------------------------------------------------------


class InvalidSessionMessage(Exception):
    """A message that the session can do nothing with; the text says why."""


def message(text: str) -> dict[str, Any]:
    """One message; raises `InvalidSessionMessage`."""
    try:
        told: object = _decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, RecursionError):
        raise InvalidSessionMessage("a message is a JSON object") from None
    if not isinstance(told, dict):
        raise InvalidSessionMessage("a message is a JSON object")
    return cast("dict[str, Any]", told)


def whole(told: dict[str, Any], name: str, most: int = _MAX_SEQ) -> int:
    """A whole number of a message."""
    value = told.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise InvalidSessionMessage(f"{name} must be a whole number")
    return value


def given(told: dict[str, Any]) -> SessionInput:
    """The input of a message; raises `InvalidSessionMessage`."""
    return SessionInput(whole(told, "seq"), _keys(told), _prompt(told), _waypoints(told))


def _keys(told: dict[str, Any]) -> tuple[str, ...] | None:
    keys = told.get("keys")
    if keys is None:
        return None
    if not isinstance(keys, list) or len(cast("list[Any]", keys)) > _MAX_KEYS:
        raise InvalidSessionMessage("keys must be a list of all keys that are held")
    names = cast("list[Any]", keys)
    if not all(isinstance(key, str) and len(key) <= _MAX_KEYS for key in names):
        raise InvalidSessionMessage("keys must be names of keys")
    return tuple(dict.fromkeys(str(key).lower() for key in names))


def _prompt(told: dict[str, Any]) -> str | None:
    prompt = told.get("prompt")
    if prompt is not None and (not isinstance(prompt, str) or len(prompt) > MAX_PROMPT):
        raise InvalidSessionMessage(f"prompt must be a text of at most {MAX_PROMPT} characters")
    return prompt


def _waypoints(told: dict[str, Any]) -> tuple[tuple[float, float], ...] | None:
    points = told.get("waypoints")
    if points is None:
        return None
    if not isinstance(points, list) or len(cast("list[Any]", points)) > MAX_WAYPOINTS:
        raise InvalidSessionMessage(f"waypoints must be a list of at most {MAX_WAYPOINTS} points")
    return tuple(_point(point) for point in cast("list[Any]", points))


def _point(point: Any) -> tuple[float, float]:
    """`[x, z]`, `[x, y, z]` or `{"x", "z"}`, in metres."""
    sides: list[Any] = cast("list[Any]", point) if isinstance(point, list) else []
    if isinstance(point, dict):
        known = cast("dict[str, Any]", point)
        sides = [known.get("x"), known.get("z")]
    if len(sides) not in (2, 3) or not all(_is_metres(side) for side in sides):
        raise InvalidSessionMessage("a waypoint is [x, z] in metres")
    return float(sides[0]), float(sides[-1])


def _is_metres(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and abs(value) <= _MAX_METRES


# -- what the server says --------------------------------------------------------------------------


def said(word: words.OutgoingMessage) -> list[str | bytes]:
    """A word as messages: one of text, and for a frame its picture."""
    if isinstance(word, words.PoseMessage):
        return [f'{{"type":"pose","seq":{word.seq},"t":{word.t},{word.pose[1:].decode()}']
    head = _encode(_plain(word)).decode()
    return [head, word.frame.data] if isinstance(word, words.FrameMessage) else [head]


def _plain(word: _Plain) -> dict[str, Any]:
    match word:
        case words.StateMessage(state, reason):
            return {"type": "state", "status": str(state)} | ({"reason": reason} if reason else {})
        case words.AckMessage(input_seq, seq):
            return {"type": "ack", "input_seq": input_seq, "seq": seq}
        case words.FrameMessage(seq, input_seq, t, frame):
            return {
                "type": "frame",
                "seq": seq,
                "input_seq": input_seq,
                "t": t,
                "width": frame.width,
                "height": frame.height,
                "format": frame.format,
            }
        case words.StatsMessage(sent, dropped, late, credit, restarts):
            counts = {"sent": sent, "dropped": dropped, "late": late, "credit": credit}
            return {"type": "stats", **counts, "restarts": restarts}
        case words.PongMessage(t):
            return {"type": "pong", "t": t}
        case words.ErrorMessage(text):
            return {"type": "error", "error": text}
