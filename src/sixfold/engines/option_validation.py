"""What an operator may write into an engine's table of the configuration, checked before anything starts."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from sixfold import import_string
from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers import options as diffusers

_PARSERS = {"sixfold.engines.image.diffusers.engine:DiffusersEngine": diffusers.parse}


class InvalidOption(ValueError):
    """An engine has no such option; the text names both."""


def check(name: str, factory: str, options: Mapping[str, Any]) -> None:
    """Raise `InvalidOption` where the engine could not be built with `options`."""
    parse = _PARSERS.get(factory)
    if parse is not None:
        try:
            parse(options)
        except ValueError as error:
            raise InvalidOption(f"[engines.{name}]: {error}") from error
        return
    build = import_string.named(factory)
    parameters = inspect.signature(build).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    known = [word for word in parameters if word != "outside"]
    for option in options:
        if option not in known and not open_ended:
            some = f"its options are {', '.join(known)}" if known else "it has none"
            raise InvalidOption(f"[engines.{name}] has no option {option!r}; {some}")
    if "outside" in parameters:
        try:
            build(_NoOption(), **options)
        except (TypeError, ValueError, KeyError, EngineError) as error:
            raise InvalidOption(f"[engines.{name}] cannot be followed: {error}") from error


class _NoOption:
    """What a remote engine is built with to see whether its options can be understood."""

    client = None

    def key(self, _name: str) -> str:
        return ""
