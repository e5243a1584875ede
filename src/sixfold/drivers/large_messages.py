"""Decoding of large messages of workers in pieces, within limits on the values of a result.

The decoder holds the GIL: one call for 2,048 vectors blocks all threads for 20 ms or more. 64 MiB of
MessagePack can contain 64 million empty lists, which take 12 s and 4 GB to build.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from sixfold.core.concurrency.single_thread import LOOP_BYTES
from sixfold.core.input_limits.budget import InputBudget, Limit
from sixfold.core.input_limits.json_decoding import pieces
from sixfold.worker import protocol
from sixfold.worker.protocol import FrameTooLarge

_PIECE_BYTES: Final = 2**17
# Each nesting level of lists and objects scans its content once more.
_MAX_LEVELS: Final = 16
# More than 900 levels could not be encoded in a response.
_MAX_DEPTH: Final = 100
_LIMITS: Final = {
    "containers": Limit(500_000, "a result must have at most {:,} lists and objects", FrameTooLarge),
    "values": Limit(3_000_000, "a result must have at most {:,} values", FrameTooLarge),
    "items": Limit(1_000_000, "a list must have at most {:,} items", FrameTooLarge),
    "members": Limit(100_000, "an object must have at most {:,} members", FrameTooLarge),
    # Also a message other than a result, a preview or a step.
    "other": Limit(2**20, "a result without its data must have at most {:,} bytes", FrameTooLarge),
    "depth": Limit(_MAX_DEPTH, "a result must have at most {:,} nesting levels", FrameTooLarge),
    "levels": Limit(_MAX_LEVELS, "a large value must have at most {:,} nesting levels", FrameTooLarge),
}
# Types of MessagePack, and the widths of the lengths that follow them.
_SHORT_LISTS = range(0x90, 0xA0)
_LISTS, _OBJECTS = {*_SHORT_LISTS, 0xDC, 0xDD}, {*range(0x80, 0x90), 0xDE, 0xDF}
_NESTED = bytes(_LISTS | _OBJECTS)
_WIDTHS = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_EMPTY = msgspec.Raw(protocol.encode({}))
_DONE, _PREVIEW, _STEPS = map(protocol.encode, ("done", "preview", "took"))
_NUMBER_INDEX, _DATA_INDEX, _OTHERS_INDEX = 1, 3, 10

_plain = msgspec.msgpack.decode
_list = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_object = msgspec.msgpack.Decoder(dict[Any, msgspec.Raw]).decode


def decode(body: bytes) -> protocol.ToServer:
    """Decode a message of a worker; a result that exceeds a limit is returned as the failure of its run.

    Raises `MsgspecError`, and `FrameTooLarge` for a large message of a kind that is usually small.
    """
    if len(body) <= LOOP_BYTES:
        return _checked(protocol.to_server.decode(body), body)
    if body[0] not in _SHORT_LISTS:
        raise msgspec.ValidationError("a message must be a list of at most 15 items")
    parts = _list(body)
    kind = bytes(parts[0])
    values: dict[str, Any] = {}
    if kind == _DONE and len(parts) > _OTHERS_INDEX:
        budget = InputBudget(**_LIMITS)
        try:
            for name, index in (("data", _DATA_INDEX), ("others", _OTHERS_INDEX)):
                values[name] = msgspec.convert(_decode(parts[index], 0, budget), dict[str, Any])
                parts[index] = _EMPTY
            body = body[:1] + b"".join(parts)
            budget.check(other=len(body))
        except FrameTooLarge as error:
            return _failure(_plain(parts[_NUMBER_INDEX], type=int), error)
    elif kind not in {_PREVIEW, _STEPS}:
        InputBudget(**_LIMITS).check(other=len(body))
    message = protocol.to_server.decode(body)
    return msgspec.structs.replace(message, **values) if values else message


def _checked(message: protocol.ToServer, body: bytes) -> protocol.ToServer:
    """Return a small message, or the failure of its run if its data nests too deeply."""
    if isinstance(message, protocol.RunDone) and len(body) - len(body.translate(None, _NESTED)) > _MAX_DEPTH:
        try:
            for value in (message.data, message.others):
                _counted(value, 0, InputBudget(**_LIMITS))
        except FrameTooLarge as error:
            return _failure(message.number, error)
    return message


def _failure(number: int, error: FrameTooLarge) -> protocol.RunFailedMessage:
    return protocol.RunFailedMessage(number, f"The model returned too much: {error}.", public=True)


def _length(view: memoryview) -> int:
    return int.from_bytes(view[1 : 1 + _WIDTHS.get(view[0], 0)], "big")


def _decode(raw: msgspec.Raw, level: int, budget: InputBudget) -> Any:
    view = memoryview(raw)
    if view.nbytes <= _PIECE_BYTES or view[0] not in _LISTS | _OBJECTS:
        return _counted(_plain(raw), level, budget)
    budget.check(levels=level)
    budget.spend(containers=1)
    if view[0] in _OBJECTS:
        budget.check(members=_length(view))
        return {name: _decode(value, level + 1, budget) for name, value in _object(raw).items()}
    budget.check(items=_length(view))
    result: list[Any] = []
    for piece in pieces(_list(raw), _PIECE_BYTES):
        if len(piece) == 1:
            result.append(_decode(piece[0], level + 1, budget))
        else:
            values = _plain(b"\xdd" + len(piece).to_bytes(4, "big") + b"".join(piece))
            result += _counted(values, level, budget)
    return result


def _counted(value: Any, level: int, budget: InputBudget) -> Any:
    """Return a decoded piece after counting its values, except for lists of floating-point numbers."""
    pending, containers, values = [value], 0, 1
    while pending:
        nested = [item for item in pending if isinstance(item, dict | list)]
        containers, level, pending = containers + len(nested), level + bool(nested), []
        budget.check(depth=level)
        for items in cast("list[dict[Any, Any] | list[Any]]", nested):
            if set(map(type, items)) != {float}:
                values += len(items)
                pending += items.values() if isinstance(items, dict) else items
    budget.spend(containers=containers, values=values)
    return value
