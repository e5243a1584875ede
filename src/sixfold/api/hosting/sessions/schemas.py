"""Schemas of sessions, and the messages of their websocket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict, cast
from urllib.parse import quote

import msgspec

from sixfold import errors
from sixfold.core import money
from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.catalog.engines import Quality
from sixfold.core.clock import SECOND_US, rfc3339
from sixfold.core.input_limits import json_decoding
from sixfold.core.sessions import connection
from sixfold.core.sessions.engine import KEYS, MAX_WAYPOINTS
from sixfold.core.sessions.inputs import SessionInput
from sixfold.core.sessions.repository import OpenedSession, SessionRecord
from sixfold.core.sessions.service import MAX_FPS
from sixfold.core.sessions.states import SessionState

PATH = "/api/containers/sessions"
SOCKET = "/ws/containers/sessions"
MAX_MESSAGE = 64 * 1024
MAX_PROMPT = 4000
_MAX_SEQ = 2**53
_MAX_KEYS = 16
_MAX_PING = 100
_MAX_METERS = 100_000.0
_Plain = (
    connection.StateMessage
    | connection.AckMessage
    | connection.FrameMessage
    | connection.StatsMessage
    | connection.PongMessage
    | connection.ErrorMessage
)
_encode = msgspec.json.Encoder().encode
_decode = json_decoding.decode_whole


class SessionBodySchema(TypedDict, total=False):
    """The inputs of a session, its frames per second, and its hardware instead of the template's."""

    input: dict[str, Any] | None
    fps: Annotated[int | None, msgspec.Meta(extra_json_schema={"minimum": 1, "maximum": MAX_FPS})]
    hardware: str | None


_Address = Annotated[str, msgspec.Meta(description="the websocket URL, including the token")]
_Idle = Annotated[float, msgspec.Meta(description="seconds without input after which the session closes")]


class OpenedSessionSchema(TypedDict):
    """A new session with its tokens."""

    session_id: str
    status: SessionState
    ws_url: _Address
    resume_token: Annotated[str, msgspec.Meta(description="replaces the token when a client reconnects")]
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
    cost: Annotated[str, msgspec.Meta(description="USD so far, as decimal text")]
    list_price_hour_usd: NotRequired[
        Annotated[str, msgspec.Meta(description="The list price per hour, if the session is free")]
    ]


class SessionBody(msgspec.Struct, frozen=True):
    """The validated body of a request for a session."""

    inputs: dict[str, Any]
    fps: int | None
    hardware: str | None


def parse_body(body: dict[str, Any]) -> SessionBody:
    """Parse the body; raises `InvalidInput` with every problem."""
    problems: list[errors.Problem] = []
    inputs: object = {} if body.get("input") is None else body["input"]
    fps: object = body.get("fps")
    if not isinstance(inputs, dict):
        problems.append(errors.Problem("input", "input must be an object", "dict_type"))
    if fps is not None and (isinstance(fps, bool) or not isinstance(fps, int) or not 1 <= fps <= MAX_FPS):
        sentence = f"fps must be a whole number from 1 to {MAX_FPS}"
        problems.append(errors.Problem("fps", sentence, "out_of_range"))
    hardware = body.get("hardware") or None
    if not isinstance(hardware, str | None):
        problems.append(errors.Problem("hardware", "hardware must be a string", "string_type"))
    if problems:
        raise errors.InvalidInput(problems)
    return SessionBody(cast("dict[str, Any]", inputs), cast("int | None", fps), cast("str | None", hardware))


def session(record: SessionRecord, base_url: str) -> SessionSchema:
    """Return a session without its secrets."""
    body: SessionSchema = {
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
        body["list_price_hour_usd"] = money.format_usd(record.list_rate)
    return body


def new_session(new: OpenedSession, base_url: str) -> OpenedSessionSchema:
    """Return the response to a new session, the only one that contains its tokens."""
    fields = session(new.session, base_url)
    return {
        "session_id": fields["session_id"],
        "status": fields["status"],
        "ws_url": f"{fields['ws_url']}?token={quote(new.token)}",
        "resume_token": new.resume_token,
        "hardware": fields["hardware"],
        "idle_seconds": fields["idle_seconds"],
        "created_at": fields["created_at"],
    }


def _seconds(us: int) -> int | float:
    return us // SECOND_US if us % SECOND_US == 0 else us / SECOND_US


# -- messages from the client -----------------------------------------------------------------------


class InvalidSessionMessage(Exception):
    """Raised if a message of a session is invalid, with the reason."""


def message(text: str) -> dict[str, Any]:
    """Parse a message; raises `InvalidSessionMessage`."""
    try:
        fields: object = _decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, RecursionError):
        raise InvalidSessionMessage("a message must be a JSON object") from None
    if not isinstance(fields, dict):
        raise InvalidSessionMessage("a message must be a JSON object")
    return cast("dict[str, Any]", fields)


def integer(fields: dict[str, Any], name: str, maximum: int = _MAX_SEQ) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise InvalidSessionMessage(f"{name} must be a whole number from 0 to {maximum}")
    return value


def ping_time(fields: dict[str, Any]) -> float | str | None:
    """Return the field `t` of a ping, which its reply repeats; raises `InvalidSessionMessage`."""
    value = fields.get("t")
    if (isinstance(value, str) and len(value) > _MAX_PING) or not isinstance(value, str | int | float | None):
        raise InvalidSessionMessage(f"t must be a number, or a string of at most {_MAX_PING} characters")
    return value


def parse_input(fields: dict[str, Any]) -> SessionInput:
    """Return the input in a message; raises `InvalidSessionMessage`."""
    return SessionInput(integer(fields, "seq"), _keys(fields), _prompt(fields), _waypoints(fields))


def _keys(fields: dict[str, Any]) -> tuple[str, ...] | None:
    keys = fields.get("keys")
    if keys is None:
        return None
    if not isinstance(keys, list) or len(cast("list[Any]", keys)) > _MAX_KEYS:
        raise InvalidSessionMessage(f"keys must be a list of at most {_MAX_KEYS} pressed keys")
    names = cast("list[Any]", keys)
    unknown = [key for key in names if not isinstance(key, str) or key.lower() not in KEYS]
    if unknown:
        raise InvalidSessionMessage(
            f"keys has an unknown key {str(unknown[0])[:_MAX_KEYS]!r}: the keys are {', '.join(KEYS)}"
        )
    return tuple(dict.fromkeys(KEYS[str(key).lower()] for key in names))


def _prompt(fields: dict[str, Any]) -> str | None:
    prompt = fields.get("prompt")
    if prompt is not None and (not isinstance(prompt, str) or len(prompt) > MAX_PROMPT):
        raise InvalidSessionMessage(f"prompt must be a string of at most {MAX_PROMPT} characters")
    return prompt


def _waypoints(fields: dict[str, Any]) -> tuple[tuple[float, float], ...] | None:
    points = fields.get("waypoints")
    if points is None:
        return None
    if not isinstance(points, list) or len(cast("list[Any]", points)) > MAX_WAYPOINTS:
        raise InvalidSessionMessage(f"waypoints must be a list of at most {MAX_WAYPOINTS} points")
    return tuple(_point(point) for point in cast("list[Any]", points))


def _point(point: Any) -> tuple[float, float]:
    """Parse `[x, z]`, `[x, y, z]`, `{"x", "z"}` or `{"x", "y"}`, in meters.

    Without a `z`, the points of a client lie in a plane, in which its `y` is the direction of `z`.
    """
    sides: list[Any] = cast("list[Any]", point) if isinstance(point, list) else []
    if isinstance(point, dict):
        fields = cast("dict[str, Any]", point)
        sides = [fields.get("x"), fields.get("z", fields.get("y"))]
    if len(sides) not in (2, 3) or not all(_is_meters(side) for side in sides):
        raise InvalidSessionMessage("a waypoint must be [x, z] or {'x', 'z'} in meters")
    return float(sides[0]), float(sides[-1])


def _is_meters(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= _MAX_METERS


# -- messages to the client -------------------------------------------------------------------------


def encode(outgoing: connection.OutgoingMessage) -> list[str | bytes]:
    """Encode a message as text; for a frame, followed by its image as bytes."""
    if isinstance(outgoing, connection.PoseMessage):
        return [f'{{"type":"pose","seq":{outgoing.seq},"t":{outgoing.t},{outgoing.pose[1:].decode()}']
    head = _encode(_plain(outgoing)).decode()
    return [head, outgoing.frame.data] if isinstance(outgoing, connection.FrameMessage) else [head]


def _plain(outgoing: _Plain) -> dict[str, Any]:
    match outgoing:
        case connection.StateMessage(state, reason, words):
            fields: dict[str, Any] = {"type": "state", "status": str(state)}
            if reason:
                fields["reason"] = reason
            if words.understood or words.ignored:
                fields |= {"understood": words.understood, "ignored": words.ignored}
            return fields
        case connection.AckMessage(input_seq, seq):
            return {"type": "ack", "input_seq": input_seq, "seq": seq}
        case connection.FrameMessage(seq, input_seq, t, frame):
            return {
                "type": "frame",
                "seq": seq,
                "input_seq": input_seq,
                "t": t,
                "width": frame.width,
                "height": frame.height,
                "format": frame.format,
            }
        case connection.StatsMessage(sent, dropped, late, credit, restarts, running_us, cost):
            counts = {"sent": sent, "dropped": dropped, "late": late, "credit": credit, "restarts": restarts}
            charge = {"seconds": running_us / SECOND_US, "cost": money.format_usd(cost)}
            return {"type": "stats", **counts, **charge}
        case connection.PongMessage(t):
            return {"type": "pong", "t": t}
        case connection.ErrorMessage(text):
            return {"type": "error", "error": text}
