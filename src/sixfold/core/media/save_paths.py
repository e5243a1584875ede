"""Save paths that callers choose for results: their syntax, and a folder for each tenant."""

from __future__ import annotations

import hashlib
import re

import msgspec

from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.errors import InvalidInput, Problem

MAX_CHARS = 512
_SEGMENT = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]+"
_PATH = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_ACCOUNT = "acct_"
_KEYLESS = "_keyless/"
_KEYS = "_keys/"
_MAX_PREFIX = 128
_MAX_SEGMENT = 255
_PREFIX_CHARS = 128
_FORMATS = {"": "webp", "webp": "webp", "png": "png", "jpg": "jpeg", "jpeg": "jpeg"}


class SaveTarget(msgspec.Struct, frozen=True):
    """The target of a result: its path in the store, and the format that its extension selects."""

    path: str
    format: str


def key(path: str) -> str | None:
    """Return the object key for a path in the store, or None for an invalid path.

    The key equals the path, except that a segment that is too long for file systems is shortened with its
    hash.
    """
    if len(path) > MAX_CHARS + _MAX_PREFIX or _PATH.fullmatch(path) is None:
        return None
    return "/".join(map(_shorten, path.split("/")))


def _shorten(segment: str) -> str:
    if len(segment) <= _MAX_SEGMENT:
        return segment
    digest = hashlib.sha256(segment.encode()).hexdigest()
    return f"{segment[:_PREFIX_CHARS]}.{digest}"


def resolve(principal: Principal, save_path: str) -> SaveTarget:
    """Return the target of a principal's `save_path`; raises `InvalidInput`."""
    if not 0 < len(save_path) <= MAX_CHARS or _PATH.fullmatch(save_path) is None:
        raise _invalid(
            f"save_path must be 1 to {MAX_CHARS} characters of A-Z a-z 0-9 . _ - /, "
            "without empty, . or .. segments and without a leading slash"
        )
    name = save_path.rpartition("/")[2]
    extension = name.rpartition(".")[2].lower() if "." in name else ""
    if extension not in _FORMATS:
        raise _invalid("save_path must end in .webp, .png, .jpg or .jpeg, or have no extension")
    is_operator = principal.is_operator or principal.tenant.keyless
    # A file with the name of a reserved folder would conflict with the files in that folder.
    folder = f"{save_path}/"
    if is_operator and folder.startswith((_ACCOUNT, _KEYLESS)):
        raise _invalid("save_path must not begin with acct_ or _keyless/, which are reserved")
    if folder.startswith(_KEYS):
        raise _invalid("save_path must not begin with _keys/, which is reserved for limited keys")
    path = store_path(principal.tenant, save_path, is_operator=principal.is_operator)
    return SaveTarget(path, _FORMATS[extension])


def store_path(tenant: Tenant, save_path: str, *, is_operator: bool) -> str:
    """Return the path in the store of a tenant's file.

    The files of the operator and those created without a key are at the top level, and those of other
    accounts below the account's id. A key that sees only its own work has a separate folder.
    """
    if tenant.credential_id:
        save_path = f"{_KEYS}{tenant.credential_id}/{save_path}"
    return save_path if is_operator or tenant.keyless else f"{tenant.account_id}/{save_path}"


def keyless_marker(path: str) -> str:
    """Return the path of the empty file that marks a file at the top level as created without a key.

    Earlier versions stored the file itself there.
    """
    return f"{_KEYLESS}{path}"


def owner_of(path: str) -> str:
    """Return the id of the account that owns a path in the store; empty for the operator."""
    first = path.partition("/")[0]
    return first if first.startswith(_ACCOUNT) else ""


def _invalid(message: str) -> InvalidInput:
    return InvalidInput([Problem("save_path", message, "value_error")])
