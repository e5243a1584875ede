"""Conversion of chat completion requests for providers that reject or rename fields of OpenAI's API.

`fields` of a row in `sixfold.providers` maps OpenAI's names to the provider's names; rejected fields are
mapped to an empty name. The prefix `messages.` denotes a field of each message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

_MESSAGES = "messages."
_MAX_USER_CHARS = 64
_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_rows = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


class FieldNames:
    """The names of request fields at one provider."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._top = {name: other for name, other in names.items() if not name.startswith(_MESSAGES)}
        self._inner = {
            name.removeprefix(_MESSAGES): other for name, other in names.items() if name.startswith(_MESSAGES)
        }
        self._quoted = [f'"{name}"'.encode() for name in self._inner]

    def adapt(self, body: bytes) -> bytes:
        """Return the request with its fields renamed as the provider expects them."""
        if not self._top and not self._inner:
            return body
        fields = _fields(body)
        _rename(fields, self._top)
        if "messages" in fields and any(name in body for name in self._quoted):
            rows = _rows(fields["messages"])
            for row in rows:
                _rename(row, self._inner)
            fields["messages"] = msgspec.Raw(_encode(rows))
        return _encode(fields)


def _rename(fields: dict[str, msgspec.Raw], names: Mapping[str, str]) -> None:
    for name, other in names.items():
        value = fields.pop(name, None)
        if value is not None and other:
            fields.setdefault(other, value)


def user_name(name: str) -> str | None:
    """Return the user name, hashed if it is long: some servers reject the long names of coding agents."""
    return (
        name if len(name) <= _MAX_USER_CHARS else hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
    ) or None
