"""The error for an unknown model, which suggests models with similar names."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from sixfold import errors

# Number of characters of a name that are compared, and of names that are compared with it.
_MAX_CHARS, _MAX_NAMES = 200, 1000


def unknown(name: str, names: Collection[str] = ()) -> errors.NotFound:
    """Return the error for a model that is neither in the catalog nor a model of the account.

    The error suggests the models with similar names and the same prefix.
    """
    near = similar(name, names)
    where = f"did you mean {near}?" if near else "`GET /api/containers/templates` lists the models"
    return errors.NotFound(f"Model {name[:100]} not found; {where}")


def similar(name: str, names: Collection[str]) -> str:
    """Return the similar names with the same prefix, joined by `or`, or an empty string."""
    prefix, slash, _ = name.partition("/")
    if not slash:
        return ""
    candidates = [name for name in names if name.startswith(prefix + slash)][:_MAX_NAMES]
    return " or ".join(difflib.get_close_matches(name[:_MAX_CHARS], candidates, 3, 0.5))
