"""Validation of the options in an engine's configuration table, before the server starts."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from sixfold import import_string
from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers import options as diffusers

_PARSERS = {"sixfold.engines.image.diffusers.engine:DiffusersEngine": diffusers.parse}


class InvalidOption(ValueError):
    """Raised for an unknown or invalid option; the message names the engine and the option."""


def check(name: str, factory: str, options: Mapping[str, Any]) -> None:
    """Raise `InvalidOption` when the engine cannot be built with `options`."""
    parse = _PARSERS.get(factory)
    if parse is not None:
        try:
            parse(options)
        except ValueError as error:
            raise InvalidOption(f"[engines.{name}]: {error}") from error
        return
    build = import_string.load(factory)
    parameters = inspect.signature(build).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    parameter_names = [parameter for parameter in parameters if parameter != "outside"]
    for option in options:
        if option not in parameter_names and not open_ended:
            options_text = (
                f"its options are {', '.join(parameter_names)}" if parameter_names else "it has no options"
            )
            raise InvalidOption(f"[engines.{name}] has an unknown option {option!r}; {options_text}")
    if "outside" in parameters:
        try:
            build(_NoServices(), **options)
        except (TypeError, ValueError, KeyError, EngineError) as error:
            raise InvalidOption(f"[engines.{name}] has invalid options: {error}") from error


class _NoServices:
    """The `HostServices` of an engine that is built only to validate its options."""

    client = None

    def key(self, _name: str) -> str:
        return ""
