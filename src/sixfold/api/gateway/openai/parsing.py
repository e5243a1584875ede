"""Parsing that chat completions and responses share: images, tools, response formats."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.gateway.chat import ImagePart, ResponseFormat
from sixfold.web import bodies

encode = msgspec.json.Encoder().encode
# Decodes an object's fields without parsing their values.
raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_WRONG_TYPE = re.compile(r"Expected `(\w+)`, got `(\w+)` - at `\$\.([^`]+)`")
# The names that a decoder uses for the types of JSON.
_TYPES = {
    "array": "an array",
    "bool": "a boolean",
    "float": "a number",
    "int": "an integer",
    "object": "an object",
    "str": "a string",
}


def head(decoder: msgspec.json.Decoder[Any], raw: bytes) -> Any:
    """Decode the common fields of requests; raises `InvalidRequest`, `BadRequest` and `InputTooLarge`."""
    bodies.check_size(raw)
    bodies.require_object(raw)
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        message = str(error)
        raise InvalidRequest(_sentence(message), param=_field_name(message)) from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise errors.BadRequest(bodies.INVALID_JSON) from error


def _sentence(message: str) -> str:
    match = _WRONG_TYPE.fullmatch(message)
    if match is None:
        return f"Invalid request: {message}"
    expected, actual, path = match.groups()
    return f"{path} must be {_TYPES.get(expected, expected)} (got {_TYPES.get(actual, actual)})"


def _field_name(message: str) -> str:
    """Return the field that a decoder's message names: the missing field, or the field at its path."""
    path = message.rpartition(" - at `$")[2].rstrip("`").removeprefix(".") if " - at `$" in message else ""
    missing = message.partition("required field `")[2].partition("`")[0]
    return ".".join(part for part in (path, missing) if part)


def mapping(value: Any, param: str) -> Mapping[str, Any]:
    """Return an object; raises `InvalidRequest`."""
    if not isinstance(value, dict):
        raise InvalidRequest(f"{param} must be an object", param=param)
    return cast("dict[str, Any]", value)


def items(value: Any, param: str) -> Sequence[Any]:
    """Return an array; raises `InvalidRequest`."""
    if not isinstance(value, list):
        raise InvalidRequest(f"{param} must be an array", param=param)
    return cast("list[Any]", value)


def number(body: Mapping[str, Any], name: str) -> float | None:
    """Return an optional number; raises `InvalidRequest`."""
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidRequest(f"{name} must be a number", param=name)
    return value


def image_part(url: Any, param: str) -> ImagePart:
    """Return an image from a URL or a data URI; raises `InvalidRequest`."""
    if not isinstance(url, str) or not url.startswith(("https://", "http://", "data:image/")):
        raise InvalidRequest(f"{param} must be an http(s) URL or a data URI of an image", param=param)
    if not url.startswith("data:"):
        return ImagePart(url=url)
    media_type, _, data = url.removeprefix("data:").partition(";base64,")
    if not data:
        raise InvalidRequest(f"{param} must contain base64 data", param=param)
    return ImagePart(media_type=media_type, data=data)


def response_format(value: Any, param: str) -> ResponseFormat | None:
    """Parse `response_format` or `text.format`; return None for plain text."""
    if value is None:
        return None
    fields = mapping(value, param)
    match fields.get("type"):
        case "text" | None:
            return None
        case "json_object":
            return ResponseFormat()
        case "json_schema":
            row = mapping(fields.get("json_schema", fields), param)
            schema = mapping(row.get("schema", {}), f"{param}.schema")
            return ResponseFormat(str(row.get("name") or "answer"), schema, bool(row.get("strict")))
        case _:
            raise InvalidRequest(f"{param}.type must be text, json_object or json_schema", param=param)


def tool_choice(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value if value in ("none", "required") else "auto"
    fields = mapping(value, "tool_choice")
    if fields.get("type", "function") not in ("function", "custom", "allowed_tools"):
        raise InvalidRequest(
            f"The tool {fields['type']!r} can be chosen only with a model of its provider: name a function "
            "instead",
            param="tool_choice",
        )
    function = fields.get("function", fields)
    name = mapping(function, "tool_choice.function").get("name")
    return f"={name}" if isinstance(name, str) else "auto"


def stop_sequences(value: Any) -> tuple[str, ...]:
    """Parse `stop`, a string or a list of strings."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(str(text) for text in items(value, "stop"))
