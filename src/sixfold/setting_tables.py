"""Conversion of the tables of `sixfold.toml` to structs, with errors of one form.

The annotation of a field states the valid values: its type, the limits of `msgspec.Meta`, and a `description`
for the error message. A field with `SECRET` may contain a password, so its value is not shown.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect
from msgspec.structs import FieldInfo

from sixfold import near_names

SECRET = {"secret": True}
StructT = TypeVar("StructT", bound=msgspec.Struct)


def convert(where: str, table: object, kind: type[StructT], others: Collection[str] = ()) -> StructT:
    """Convert the table `where`, such as `[search]`; raises `ValueError` with a one-line message.

    `others` are settings of the table that the caller converts.
    """
    fields, values = _fields(kind), as_table(where, table)
    refuse_unknown(where, values, (*fields, *others))
    converted = {
        name: _convert(f"{where} {name}", fields[name].type, value)
        for name, value in values.items()
        if name not in others
    }
    for name, field in fields.items():
        if field.required and name not in converted:
            raise ValueError(f"{where} must have {name}, {_describe(inspect.type_info(field.type))}")
    return kind(**converted)


def as_table(where: str, value: object) -> dict[str, Any]:
    """Return a table; raises `ValueError`."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a table (got {value!r})")  # noqa: TRY004 - a wrong file is a ValueError
    return cast("dict[str, Any]", value)


def refuse_unknown(where: str, table: Mapping[str, object], allowed: Collection[str]) -> None:
    """Raise `ValueError` if a table has a setting that is not allowed."""
    if unknown := sorted(table.keys() - set(allowed)):
        advice = near_names.advice(unknown[0], sorted(allowed))
        raise ValueError(f"{where} has an unknown setting {unknown[0]!r}: {advice}")


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(kind)}


def _convert(where: str, kind: Any, value: object) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        valid = inspect.type_info(kind)
    is_secret = isinstance(valid, inspect.Metadata) and bool((valid.extra or {}).get("secret"))
    raise ValueError(f"{where} must be {_describe(valid)}" + ("" if is_secret else f" (got {value!r})"))


def _describe(kind: inspect.Type) -> str:
    """Describe the valid values of a field."""
    match kind:
        case inspect.Metadata(type=inner, extra_json_schema=schema):
            return str((schema or {}).get("description") or _describe(inner))
        case inspect.UnionType(types=types):
            return _describe(next(each for each in types if not isinstance(each, inspect.NoneType)))
        case inspect.IntType(ge=least, le=most) | inspect.FloatType(ge=least, le=most):
            noun = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
            return noun if least is None else f"{noun} from {least:g} to {most:g}"
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType(values=values):
            return " or ".join(map(str, values))
        case inspect.VarTupleType():
            return "a list of names"
        case _:
            return "a text"
