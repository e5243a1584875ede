"""What an operator may write into an engine's table of the configuration, checked before anything starts."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from sixfold.engines.image.diffusers import options as diffusers

_PARSERS = {"sixfold.engines.image.diffusers.engine:DiffusersEngine": diffusers.parse}


class WrongWish(ValueError):
    """An engine has no such option; the text names both."""


def check(name: str, factory: str, options: Mapping[str, Any]) -> None:
    """Raise `WrongWish` where the engine could not be built with `options`."""
    parse = _PARSERS.get(factory)
    if parse is not None:
        try:
            parse(options)
        except ValueError as error:
            raise WrongWish(f"[engines.{name}]: {error}") from error
        return
    module, _, attribute = factory.partition(":")
    parameters = inspect.signature(getattr(importlib.import_module(module), attribute)).parameters
    known = [word for word in parameters if word != "outside"]
    for option in options:
        if option not in known:
            some = f"its options are {', '.join(known)}" if known else "it has none"
            raise WrongWish(f"[engines.{name}] has no option {option!r}; {some}")
