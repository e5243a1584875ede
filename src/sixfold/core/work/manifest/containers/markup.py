"""Text as XML character data, both ways, without an XML parser."""

from __future__ import annotations

import re

_ENTITIES = {b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'", b"amp": b"&"}
_ENTITY = re.compile(rb"&(lt|gt|quot|apos|amp|#34|#39|#38|#60|#62);")
_NUMBERS = {b"#34": b'"', b"#39": b"'", b"#38": b"&", b"#60": b"<", b"#62": b">"}


def escaped(text: str) -> str:
    """Text fit to stand between two tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescaped(raw: bytes) -> bytes:
    """What stood there before `escaped`, also when another program wrote quotes as entities."""
    return _ENTITY.sub(lambda match: _ENTITIES.get(match[1]) or _NUMBERS[match[1]], raw)
