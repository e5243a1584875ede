"""Paths that callers choose for their results: one grammar, and a prefix for every account."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sixfold.core.accounts.keys import Principal
from sixfold.errors import InvalidInput, Problem

MAX_CHARS = 512
_SEGMENT = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]+"
_PATH = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_ACCOUNT = "acct_"
_FORMATS = {"": "webp", "webp": "webp", "png": "png", "jpg": "jpeg", "jpeg": "jpeg"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a result goes: its key in the store, and the format that the path's extension asks for."""

    key: str
    format: str


def is_key(path: str) -> bool:
    """Whether a path can be a stored object's: nothing empty, no `.` or `..`, plain characters only."""
    return len(path) <= MAX_CHARS + 64 and _PATH.fullmatch(path) is not None


def place(principal: Principal, save_path: str) -> Place:
    """Where an account's `save_path` lies; raises `InvalidInput`.

    The operator's files lie at the top, everybody else's below their account's id.
    """
    if not 0 < len(save_path) <= MAX_CHARS or _PATH.fullmatch(save_path) is None:
        raise _refused(
            f"save_path must be 1 to {MAX_CHARS} characters of A-Z a-z 0-9 . _ - /, "
            "without empty, . or .. segments and without a leading slash"
        )
    name = save_path.rpartition("/")[2]
    extension = name.rpartition(".")[2].lower() if "." in name else ""
    if extension not in _FORMATS:
        raise _refused("save_path must end in .webp, .png, .jpg or .jpeg, or have no extension")
    if principal.is_operator:
        if save_path.startswith(_ACCOUNT):
            raise _refused("save_path may not begin with acct_, where accounts keep their files")
        return Place(save_path, _FORMATS[extension])
    return Place(f"{principal.account_id}/{save_path}", _FORMATS[extension])


def _refused(message: str) -> InvalidInput:
    return InvalidInput([Problem("save_path", message, "value_error")])
