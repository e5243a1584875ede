"""Conversion of setting strings to the types of their fields, and the error of an invalid setting."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


class InvalidSetting(Exception):
    """A setting is invalid; the message names it and what would be valid."""

    @classmethod
    @contextmanager
    def of(cls, *kinds: type[Exception]) -> Generator[None]:
        """Raise this error, with the same message, for errors of the other kinds within the block."""
        try:
            yield
        except kinds as error:
            raise cls(str(error)) from error


def convert(kind: str, value: Any) -> Any:
    """Convert a value to the type with the annotation `kind`; raises `ValueError` and `TypeError`."""
    if kind.startswith("bool"):
        return _boolean(value)
    if kind.startswith("int"):
        return int(value)
    if kind.startswith("float"):
        return float(value)
    if kind.startswith("Path"):
        return Path(str(value)).expanduser()
    if kind.startswith("tuple"):
        parts = value if isinstance(value, list) else str(value).split(",")
        return tuple(str(part).strip() for part in parts if str(part).strip())
    if kind.startswith("Literal"):
        choices = [part.strip(" \"'") for part in kind[len("Literal[") : -1].split(",")]
        if str(value) not in choices:
            raise ValueError(value)
    return str(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError(value)


def redacted(url: str) -> str:
    """Return an invalid URL for an error message, without the parts that may be secret."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    return repr(f"{scheme}{separator}{re.split('[?#]', rest.rpartition('@')[2])[0]}"[:200])


def has_valid_port(url: str) -> bool:
    """Return whether the port of a URL is missing or a number from 1 to 65535."""
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


def is_ipv6(host: str) -> bool:
    """Return whether a host is an IPv6 address without a zone."""
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return "%" not in host


def noun(kind: str) -> str:
    """Describe the values of an annotation, for an error message."""
    if kind.startswith("Literal"):
        choices = [part.strip(" \"'") for part in kind[len("Literal[") : -1].split(",")]
        return " or ".join(choice for choice in choices if choice)
    nouns = {"bool": "0 or 1", "int": "a whole number", "float": "a number"}
    return next((noun for start, noun in nouns.items() if kind.startswith(start)), f"a value of type {kind}")
