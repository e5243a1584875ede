"""Named places at which a test may kill this process or make it fail: `SIXFOLD_FAILPOINTS`.

A point reads `name=action`: `engine.run.<model>` takes `fail`, `hang` or `crash` and acts inside the
worker; every other name is a place in the server and takes `crash` (kill −9 of the server itself) or
`fail`. `name=crash@3` acts at the third time only. Without `SIXFOLD_TESTING=1` there are none.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Literal

Action = Literal["fail", "hang", "crash"]
_ENGINE = "engine.run."
_ACTIONS = ("fail", "hang", "crash")
SERVER_POINTS = (
    "accept.before",
    "accept.after",
    "claim.after",
    "dispatch.before",
    "dispatch.after",
    "store.before",
    "store.after",
    "capture.before",
    "capture.after",
)


class FailpointHit(Exception):
    """A test asked this place to fail."""


class Failpoints:
    """The points of one process, parsed from the setting's text."""

    def __init__(self, text: str = "") -> None:
        self._server: dict[str, tuple[Action, int]] = {}
        self.engines: dict[str, Action] = {}
        self._hits: Counter[str] = Counter()
        for item in filter(None, (part.strip() for part in text.split(","))):
            self._add(item)

    def _add(self, item: str) -> None:
        name, _, rest = item.partition("=")
        action, _, nth = rest.partition("@")
        if action not in _ACTIONS:
            raise ValueError(f"failpoint {item!r} has no action of {', '.join(_ACTIONS)}")
        if name.startswith(_ENGINE):
            self.engines[name.removeprefix(_ENGINE)] = action
        elif name in SERVER_POINTS:
            self._server[name] = (action, int(nth or 1))
        else:
            raise ValueError(f"there is no failpoint {name!r}")

    def hit(self, name: str) -> None:
        """Pass a named place; does nothing unless a test armed it."""
        if not self._server:
            return
        self._hits[name] += 1
        action, nth = self._server.get(name, (None, 0))
        if action is None or self._hits[name] != nth:
            return
        if action == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        raise FailpointHit(name)
