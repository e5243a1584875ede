"""Inputs of a session's viewer, and the controls of a step that result from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from sixfold.core.sessions.engine import Controls


class SessionInput(msgspec.Struct, frozen=True):
    """An input message from the viewer; None fields do not change."""

    seq: int
    keys: tuple[str, ...] | None = None
    prompt: str | None = None
    waypoints: tuple[tuple[float, float], ...] | None = None


def merge_inputs(earlier: SessionInput, later: SessionInput) -> SessionInput:
    """Merge two inputs: take values that `later` does not set from `earlier`, and the keys of both."""
    changes = {name: value for name, value in msgspec.structs.asdict(later).items() if value is not None}
    if earlier.keys is not None and later.keys is not None:
        changes["keys"] = tuple(dict.fromkeys((*earlier.keys, *later.keys)))
    return msgspec.structs.replace(earlier, **changes)


def combine_inputs(held: Iterable[str], inputs: Sequence[SessionInput]) -> Controls:
    """Return the controls of a step: the held keys, and the inputs that arrived since the previous step.

    A key that was pressed and released between two steps is pressed in one of them.
    """
    pressed_keys = (key for message in inputs for key in message.keys or ())
    prompts = [message.prompt for message in inputs if message.prompt is not None]
    routes = [message.waypoints for message in inputs if message.waypoints is not None]
    return Controls(
        keys=tuple(dict.fromkeys((*held, *pressed_keys))),
        prompt=prompts[-1] if prompts else None,
        waypoints=routes[-1] if routes else None,
    )
