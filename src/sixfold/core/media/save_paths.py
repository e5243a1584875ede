"""Paths that callers choose for their results: one grammar, and a folder for every tenant."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.errors import InvalidInput, Problem

MAX_CHARS = 512
_SEGMENT = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]+"
_PATH = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_ACCOUNT = "acct_"
_KEYLESS = "_keyless/"
_KEYS = "_keys/"
_RESERVED = (_ACCOUNT, _KEYLESS)
_MAX_PREFIX = 128
_MAX_SEGMENT = 255
_KEPT = 128
_FORMATS = {"": "webp", "webp": "webp", "png": "png", "jpg": "jpeg", "jpeg": "jpeg"}


@dataclass(frozen=True, slots=True)
class SaveTarget:
    """Where a result goes: its path in the store, and the format that its extension asks for."""

    path: str
    format: str


def key(path: str) -> str | None:
    """The key of the object at a path in the store; None when nothing can lie there.

    The two are the same, but that a segment which no file system takes is shortened to its hash.
    """
    if len(path) > MAX_CHARS + _MAX_PREFIX or _PATH.fullmatch(path) is None:
        return None
    return "/".join(map(_shortened, path.split("/")))


def _shortened(segment: str) -> str:
    if len(segment) <= _MAX_SEGMENT:
        return segment
    digest = hashlib.sha256(segment.encode()).hexdigest()
    return f"{segment[:_KEPT]}.{digest}"


def place(principal: Principal, save_path: str) -> SaveTarget:
    """Where a principal's `save_path` lies; raises `InvalidInput`."""
    if not 0 < len(save_path) <= MAX_CHARS or _PATH.fullmatch(save_path) is None:
        raise _refused(
            f"save_path must be 1 to {MAX_CHARS} characters of A-Z a-z 0-9 . _ - /, "
            "without empty, . or .. segments and without a leading slash"
        )
    name = save_path.rpartition("/")[2]
    extension = name.rpartition(".")[2].lower() if "." in name else ""
    if extension not in _FORMATS:
        raise _refused("save_path must end in .webp, .png, .jpg or .jpeg, or have no extension")
    if principal.is_operator and save_path.startswith(_RESERVED):
        raise _refused("save_path may not begin with acct_ or _keyless/, where others keep their files")
    if save_path.startswith(_KEYS):
        raise _refused("save_path may not begin with _keys/, where limited keys keep their files")
    path = stored(principal.tenant, save_path, is_operator=principal.is_operator)
    return SaveTarget(path, _FORMATS[extension])


def stored(tenant: Tenant, save_path: str, *, is_operator: bool) -> str:
    """The path in the store of a tenant's file.

    The operator's files lie at the top, other accounts' below their ids, those made without a key in a folder
    of their own, and those of a key that sees only its own work in a folder for each.
    """
    if tenant.keyless:
        return f"{_KEYLESS}{save_path}"
    if tenant.credential_id:
        save_path = f"{_KEYS}{tenant.credential_id}/{save_path}"
    return save_path if is_operator else f"{tenant.account_id}/{save_path}"


def owner_of(path: str) -> str:
    """The id of the account whose file a path in the store is; "" for the operator's."""
    first = path.partition("/")[0]
    return first if first.startswith(_ACCOUNT) else ""


def _refused(message: str) -> InvalidInput:
    return InvalidInput([Problem("save_path", message, "value_error")])
