"""Rules that decide whether a file of the models folder is live, and whether it runs in a sandbox."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from sixfold.clients import bubblewrap

ADD = "on a public address a file must be added with `sixfold model add`"


class VisibilityDecision(msgspec.Struct, frozen=True):
    """The decision for a file: whether it runs in a sandbox, and a `note` for its author.

    `fault` is the reason if the file is not live.
    """

    sandboxed: bool = False
    fault: str = ""
    note: str = ""


class VisibilityRules(msgspec.Struct, frozen=True):
    """Rules for files of the models folder.

    With `open_to_all`, a file is live as soon as it is in the folder. `sandbox` is the setting of that name.
    A file that `sixfold model add` added is trusted and runs without a sandbox; any other file runs in a
    sandbox. If there is no sandbox, only files that the operator owns are live, with a note.
    """

    open_to_all: bool = True
    sandbox: Literal["", "always", "off"] = ""

    def judge(self, path: Path, *, trusted: bool) -> VisibilityDecision:
        """Return the decision for a file; `trusted` means that `sixfold model add` added it."""
        if not trusted and not self.open_to_all:
            return VisibilityDecision(fault=ADD)
        if self.sandbox == "off" or (trusted and self.sandbox != "always"):
            return VisibilityDecision()
        missing = bubblewrap.fault()
        if not missing:
            return VisibilityDecision(sandboxed=True)
        if self.sandbox == "always":
            return VisibilityDecision(fault=f"SIXFOLD_SANDBOX=always, but {missing}")
        if path.stat().st_uid != os.getuid():
            return VisibilityDecision(
                fault=f"it belongs to another user and must run in a sandbox, but {missing}"
            )
        return VisibilityDecision(note=f"runs without a sandbox, since {missing}")
