"""Models as Python functions: `@sixfold.model` on a function of a file makes it a model.

    import sixfold
    from typing import Annotated

    @sixfold.model
    def greet(name: str, times: Annotated[int, sixfold.Range(1, 9)] = 1) -> str:
        return ", ".join([f"hello {name}"] * times)

The type hints define inputs and outputs; the function can still be called as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, overload

import msgspec

MARK = "__sixfold_model__"
F = TypeVar("F", bound=Callable[..., Any])
# An argument of this type receives a function that reports progress from 0 to 1.
Progress = Callable[[float], None]


class ModelFacts(msgspec.Struct, frozen=True):
    """The arguments of the decorator; empty arguments are derived from the file."""

    name: str = ""
    title: str = ""
    description: str = ""
    hardware: str = ""


class Range(msgspec.Struct, frozen=True):
    """An inclusive range from `least` to `most`."""

    least: float | None = None
    most: float | None = None


class Length(msgspec.Struct, frozen=True):
    """A maximum length of text in characters."""

    most: int


class Media(msgspec.Struct, frozen=True):
    """A file of this kind: image, audio, video or file."""

    kind: str


Picture = Annotated[Path, Media("image")]
Audio = Annotated[Path, Media("audio")]
Video = Annotated[Path, Media("video")]


@overload
def model(function: F) -> F: ...


@overload
def model(
    *, name: str = "", title: str = "", description: str = "", hardware: str = ""
) -> Callable[[F], F]: ...


def model(function: F | None = None, **facts: str) -> F | Callable[[F], F]:
    """Mark a function as the model of its file."""

    def mark(target: F) -> F:
        setattr(target, MARK, ModelFacts(**facts))
        return target

    return mark if function is None else mark(function)
