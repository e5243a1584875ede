"""The schema of operations on the memory, which REST, MCP tools and the command line share.

An operation takes validated arguments and returns plain values of limited size: a long text is returned in
parts with an offset, and a list with a cursor. `Operation.description` is the documentation for agents.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, cast

import msgspec

from sixfold import errors
from sixfold.core.memory.models import Caller

Kind = Literal["string", "integer", "boolean", "strings", "object", "objects"]
Arguments = Mapping[str, Any]
Handler = Callable[[Caller, Arguments], Awaitable[Mapping[str, Any]]]


class OperationField(msgspec.Struct, frozen=True):
    """One argument. `strings` is a list of strings, or a single string with commas; limits are inclusive.

    `max_chars` applies to strings.
    """

    name: str
    kind: Kind
    description: str
    required: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    max_chars: int | None = None

    def schema(self) -> dict[str, Any]:
        document: dict[str, Any] = {"description": self.description}
        if self.kind == "strings":
            document |= {"type": "array", "items": {"type": "string"}}
        elif self.kind == "objects":
            document |= {"type": "array", "items": {"type": "object"}}
        else:
            document["type"] = self.kind
        limits = {
            "default": self.default,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "maxLength": self.max_chars,
        }
        document |= {name: limit for name, limit in limits.items() if limit is not None}
        return document | ({"enum": list(self.choices)} if self.choices else {})

    def read(self, value: Any) -> Any:
        """Return the validated value; raises `ValueError` with the problem."""
        value = _READERS[self.kind](value)
        if isinstance(value, str):
            if self.choices and value not in self.choices:
                raise ValueError(f"must be one of {', '.join(self.choices)}")
            if self.max_chars is not None and len(value) > self.max_chars:
                raise ValueError(f"must have at most {self.max_chars} characters (got {len(value)})")
        if isinstance(value, int) and not isinstance(value, bool):
            self._check_range(value)
        return value

    def _check_range(self, value: int) -> None:
        low, high = self.minimum, self.maximum
        if (low is not None and value < low) or (high is not None and value > high):
            raise ValueError(
                f"must be from {low} to {high}" if high is not None else f"must be at least {low}"
            )


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004 - every reader raises ValueError
    return value


def _integer(value: Any) -> int:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**62:
        raise ValueError("must be a whole number")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")  # noqa: TRY004 - every reader raises ValueError
    return value


def _strings(value: Any) -> list[str]:
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in cast("list[object]", parts)):
        raise ValueError("must be a list of strings")
    return cast("list[str]", parts)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("must be an object")  # noqa: TRY004 - every reader raises ValueError
    return cast("dict[str, Any]", value)


def _objects(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in cast("list[object]", value)):
        raise ValueError("must be a list of objects")
    return cast("list[dict[str, Any]]", value)


_READERS: Mapping[Kind, Callable[[Any], Any]] = {
    "string": _string,
    "integer": _integer,
    "boolean": _boolean,
    "strings": _strings,
    "object": _object,
    "objects": _objects,
}


class Operation(msgspec.Struct, frozen=True):
    """An operation, with its name, description for agents, arguments, and whether it writes."""

    name: str
    description: str
    fields: tuple[OperationField, ...]
    writes: bool
    handler: Handler

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {field.name: field.schema() for field in self.fields},
            "required": [field.name for field in self.fields if field.required],
        }

    def read(self, arguments: Arguments) -> dict[str, Any]:
        """Return the validated arguments, with defaults for missing and null ones.

        Raises `InvalidInput` with all problems. Unknown names are ignored.
        """
        problems: list[errors.Problem] = []
        values: dict[str, Any] = {}
        for field in self.fields:
            value = arguments.get(field.name)
            if value is None:
                if field.required:
                    problems.append(errors.Problem(field.name, f"{field.name} is required", "missing"))
                values[field.name] = field.default
                continue
            try:
                values[field.name] = field.read(value)
            except ValueError as error:
                problems.append(errors.Problem(field.name, f"{field.name} {error}"))
        if problems:
            raise errors.InvalidInput(problems)
        return values

    async def __call__(self, caller: Caller, arguments: Arguments) -> dict[str, Any]:
        """Validate the arguments and run the operation; raises a `SixfoldError`."""
        return dict(await self.handler(caller, self.read(arguments)))
