"""Parts that chat completions and responses have in common: pictures, tools, the shape of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.gateway.chat import ImagePart, ResponseFormat
from sixfold.web import bodies

encode = msgspec.json.Encoder().encode
raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode  # an object's fields, each as it was written


def head(decoder: msgspec.json.Decoder[Any], raw: bytes) -> Any:
    """The few fields that are read of every request; raises what a caller is told."""
    bodies.check_size(raw)
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        text = str(error)
        raise InvalidRequest(f"Invalid request: {text}", param=_named(text)) from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise errors.BadRequest(bodies.INVALID_JSON) from error


def _named(text: str) -> str:
    """The field that a sentence of the decoder is of: what is missing, or what is at a path."""
    at = text.rpartition(" - at `$")[2].rstrip("`").removeprefix(".") if " - at `$" in text else ""
    missing = text.partition("required field `")[2].partition("`")[0]
    return ".".join(part for part in (at, missing) if part)


def mapping(value: Any, param: str) -> Mapping[str, Any]:
    """An object; raises `InvalidRequest`."""
    if not isinstance(value, dict):
        raise InvalidRequest(f"{param} must be an object", param=param)
    return cast("dict[str, Any]", value)


def items(value: Any, param: str) -> Sequence[Any]:
    """An array; raises `InvalidRequest`."""
    if not isinstance(value, list):
        raise InvalidRequest(f"{param} must be an array", param=param)
    return cast("list[Any]", value)


def number(body: Mapping[str, Any], name: str) -> float | None:
    """A number, where there is one; raises `InvalidRequest`."""
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidRequest(f"{name} must be a number", param=name)
    return value


def picture(url: Any, param: str) -> ImagePart:
    """A picture by its address or as a data URI; raises `InvalidRequest`."""
    if not isinstance(url, str) or not url.startswith(("https://", "http://", "data:image/")):
        raise InvalidRequest(f"{param} must be an http address or a data URI of an image", param=param)
    if not url.startswith("data:"):
        return ImagePart(url=url)
    media_type, _, data = url.removeprefix("data:").partition(";base64,")
    if not data:
        raise InvalidRequest(f"{param} must be base64", param=param)
    return ImagePart(media_type=media_type, data=data)


def shape(value: Any, param: str) -> ResponseFormat | None:
    """`response_format`, or `text.format`: none for plain text."""
    if value is None:
        return None
    found = mapping(value, param)
    match found.get("type"):
        case "text" | None:
            return None
        case "json_object":
            return ResponseFormat()
        case "json_schema":
            row = mapping(found.get("json_schema", found), param)
            schema = mapping(row.get("schema", {}), f"{param}.schema")
            return ResponseFormat(str(row.get("name") or "answer"), schema, bool(row.get("strict")))
        case _:
            raise InvalidRequest(f"{param} has a type that is not known", param=param)


def choice(value: Any) -> str:
    """`tool_choice`."""
    if value is None or isinstance(value, str):
        return value if value in ("none", "required") else "auto"
    found = mapping(value, "tool_choice")
    if found.get("type", "function") not in ("function", "custom", "allowed_tools"):
        raise InvalidRequest(
            f"The tool {found['type']!r} is run by its own provider only", param="tool_choice"
        )
    function = found.get("function", found)
    name = mapping(function, "tool_choice.function").get("name")
    return f"={name}" if isinstance(name, str) else "auto"


def stops(value: Any) -> tuple[str, ...]:
    """`stop`: a text or some."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(str(text) for text in items(value, "stop"))
