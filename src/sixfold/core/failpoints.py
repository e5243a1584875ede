"""Failpoints: named places at which a test can kill this process or make it fail (`SIXFOLD_FAILPOINTS`).

A failpoint is set as `name=action`. `engine.run.<model>` acts in the worker and supports `fail`, `hang` and
`crash`; all other names are places in the server and support `fail` and `crash`, which kills the server
(SIGKILL). `name=crash@3` acts only at the third hit. Failpoints require `SIXFOLD_TESTING=1`.
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
# Points on both sides of the transaction that refunds a prediction.
REFUND_POINTS = ("refund.before", "refund.after")
# Points around the booking of a message of the payment processor, and around the marking of a saved file.
PAYMENT_POINTS = ("payment.before", "payment.after")
SAVE_POINTS = ("save.before", "save.after")
# Points on both sides of the transaction that stores the answer to a line of a batch.
BATCH_POINTS = ("batch.answered", "batch.stored")
# Points of the sweep of expired records, and of the archive.
ARCHIVE_POINTS = ("sweep.deleted", "archive.opened", "archive.stored", "archive.sealed")
ERASE_POINTS = ("erase.staged", "erase.stored", "erase.replaced")
_SWEEP_POINTS = (*ARCHIVE_POINTS, *ERASE_POINTS)
_POINTS = (*SERVER_POINTS, *REFUND_POINTS, *PAYMENT_POINTS, *SAVE_POINTS, *BATCH_POINTS, *_SWEEP_POINTS)


class FailpointHit(Exception):
    """A failpoint with the action `fail` was reached."""


class Failpoints:
    """The failpoints of a process, parsed from the setting."""

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
            raise ValueError(f"failpoint {item!r} must have an action: {', '.join(_ACTIONS)}")
        if name.startswith(_ENGINE):
            self.engines[name.removeprefix(_ENGINE)] = action
        elif name in _POINTS:
            self._server[name] = (action, int(nth or 1))
        else:
            raise ValueError(f"unknown failpoint {name!r}: use {_ENGINE}MODEL, {', '.join(_POINTS)}")

    def hit(self, name: str) -> None:
        """Perform the failpoint's action if a test has set it."""
        if not self._server:
            return
        self._hits[name] += 1
        action, nth = self._server.get(name, (None, 0))
        if action is None or self._hits[name] != nth:
            return
        if action == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        raise FailpointHit(name)
