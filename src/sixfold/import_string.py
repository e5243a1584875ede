"""Import of objects named as `module:attribute`, deferred until they are needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def load(target: str) -> Any:
    """Import and return an object named `module:attribute`; raises `ImportError` or `AttributeError`."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def deferred(target: str) -> Callable[..., Any]:
    """Return a function that imports `module:attribute` at its first call, and forwards calls to it."""

    def call(*arguments: Any) -> Any:
        return load(target)(*arguments)

    return call
