"""What is named as text, `module:attribute`, and imported only where it is wanted."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def named(target: str) -> Any:
    """What `module:attribute` names; raises `ImportError` and `AttributeError`."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def deferred(target: str) -> Callable[..., Any]:
    """A function that calls the one that `module:attribute` names, and imports it at its first call."""

    def call(*arguments: Any) -> Any:
        return named(target)(*arguments)

    return call
