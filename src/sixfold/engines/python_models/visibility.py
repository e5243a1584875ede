"""Which files of the models' folder are live, and which of them run in a sandbox."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sixfold.clients import bubblewrap

ADD = "on a public address a file is live once it came by `sixfold model add`"


@dataclass(frozen=True, slots=True)
class VisibilityDecision:
    """What becomes of a file: it is `shut` in or not; or the `fault` for which it is not live; a `note`."""

    shut: bool = False
    fault: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class VisibilityRules:
    """`open_to_all`: a file is live as soon as it lies there. `sandbox`: by the setting of that name.

    A file that `sixfold model add` put there is vouched for, and runs as the operator's own programs do.
    Any other is shut in. Where that cannot be, only the user's own files are live, and it is said.
    """

    open_to_all: bool = True
    sandbox: Literal["", "always", "off"] = ""

    def judge(self, path: Path, *, vouched: bool) -> VisibilityDecision:
        """What becomes of a file."""
        if not vouched and not self.open_to_all:
            return VisibilityDecision(fault=ADD)
        if self.sandbox == "off" or (vouched and self.sandbox != "always"):
            return VisibilityDecision()
        missing = bubblewrap.fault()
        if not missing:
            return VisibilityDecision(shut=True)
        if self.sandbox == "always":
            return VisibilityDecision(fault=f"SIXFOLD_SANDBOX=always, and {missing}")
        if path.stat().st_uid != os.getuid():
            return VisibilityDecision(
                fault=f"it is another user's, so it runs in a sandbox only, and {missing}"
            )
        return VisibilityDecision(note=f"runs without a sandbox, since {missing}")
