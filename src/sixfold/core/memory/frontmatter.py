"""YAML front matter of Markdown files, parsed leniently and changed without altering other keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec
import yaml

MAX_CHARS = 65_536
MAX_ROWS = 2_000
_ROW_KEYS = ("to", "type", "context", "date", "summary", "detail", "source")
_OPEN = re.compile(r"\ufeff?---[ \t]*\r?\n")
_CLOSE = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_SIMPLE = re.compile(r"([A-Za-z_][\w -]*?)[ \t]*:(?:[ \t]+(.*?))?[ \t]*\r?")
_PROPERTY = re.compile(r"[ \t]*(?:[-*][ \t]+)?([A-Za-z_][\w-]*)::[ \t]*(.*?)[ \t]*\r?")
_NOTION = re.compile(r"# [^\n]*\n\n((?:[^\n:]{1,80}: [^\n]*\n)+)")
_NOTION_TAGS = re.compile(r"^Tags: (.+)$", re.MULTILINE)
_NESTED = re.compile(r"(?:[-?:][ \t]+){12}|^[ \t]{60}", re.MULTILINE)
_MAX_NESTING = 300
_MAX_LINE = 1000
_SPLIT = re.compile(r"[,\n]")
_HASHED = re.compile(r"#[^\s,]+(?:\s+#[^\s,]+)+")
# These keys describe the page itself and are not links.
OWN = frozenset(
    {"title", "type", "tags", "tag", "collections", "collection", "links", "timeline", "alias", "aliases"}
)
_LOADER: Any = type("Loader", (getattr(yaml, "CBaseLoader", yaml.BaseLoader),), {})


def _nothing(*_: object) -> str:
    return ""


_NULL = "tag:yaml.org,2002:null"
_LOADER.add_implicit_resolver(_NULL, re.compile(r"(?:~|null|Null|NULL)\Z"), list("~nN"))
# Every other scalar remains a string.
_LOADER.add_constructor(_NULL, _nothing)

Value = str | tuple[str, ...] | list[Mapping[str, str]]


class FrontMatter(msgspec.Struct, frozen=True):
    """The fields that a front matter sets; missing fields are None."""

    title: str | None = None
    type: str | None = None
    tags: tuple[str, ...] | None = None
    collections: tuple[str, ...] | None = None
    links: tuple[Mapping[str, str], ...] | None = None
    timeline: tuple[Mapping[str, str], ...] | None = None
    aliases: tuple[str, ...] | None = None
    old_slugs: tuple[str, ...] | None = None

    def named(self) -> Iterator[tuple[str, str | tuple[str, ...] | None]]:
        """The four fields that are also columns of a page."""
        yield "title", self.title
        yield "type", self.type
        yield "tags", self.tags
        yield "collections", self.collections


NOTHING = FrontMatter()


def block(text: str) -> str:
    """Return the front matter of a text verbatim with its fences, or an empty string."""
    opening = _OPEN.match(text)
    if opening is None:
        return ""
    closing = _CLOSE.search(text, opening.end(), opening.end() + MAX_CHARS)
    return text[: closing.end()] if closing is not None else ""


def inside(head: str) -> str:
    """Return a block without its fences."""
    opening = _OPEN.match(head)
    if opening is None:
        return ""
    closing = _CLOSE.search(head, opening.end())
    return head[opening.end() : closing.start() if closing is not None else len(head)]


def read(head: str) -> FrontMatter | None:
    """Parse a block; return None if it is not a mapping, such as a text between two horizontal rules."""
    text = inside(head)
    if not text.strip():
        return NOTHING
    if not _is_shallow(text):
        return _parse_lines(text)
    try:
        fields: Any = yaml.load(text, Loader=_LOADER)  # noqa: S506 - the base loader makes texts and lists only
    except (yaml.YAMLError, RecursionError, ValueError):
        return _parse_lines(text)
    if not isinstance(fields, dict):
        return None
    return _fields({str(key).lower(): value for key, value in cast("dict[object, object]", fields).items()})


def _is_shallow(text: str) -> bool:
    """Return whether YAML may parse the text; deep nesting would exhaust the parser's stack."""
    return text.count("[") + text.count("{") <= _MAX_NESTING and _NESTED.search(text) is None


def _parse_lines(text: str) -> FrontMatter | None:
    """Parse the lines `key: value` of malformed YAML."""
    fields: dict[str, object] = {}
    for line in text.splitlines():
        simple = _SIMPLE.fullmatch(line) if len(line) <= _MAX_LINE else None
        if simple is not None:
            fields.setdefault(simple[1].lower(), (simple[2] or "").strip("\"'"))
    return _fields(fields) if fields else None


def properties(body: str) -> FrontMatter:
    """Parse the lines `key:: value` at the top of an outliner's page."""
    fields: dict[str, object] = {}
    if "::" in body[:2000]:
        for line in body[:2000].split("\n"):
            match = _PROPERTY.fullmatch(line)
            if match is None:
                break
            fields.setdefault(match[1].lower(), match[2])
    return _fields(fields) if fields else NOTHING


def notion_properties(body: str) -> FrontMatter:
    """Parse the tags among the lines `Name: value` between the heading and text of a page from Notion."""
    match = _NOTION.match(body[:2000])
    tags = None if match is None else _NOTION_TAGS.search(match[1])
    return NOTHING if tags is None else _fields({"tags": tags[1]})


def _fields(values: Mapping[str, object]) -> FrontMatter:
    return FrontMatter(
        title=_text(values.get("title")),
        type=_text(values.get("type")),
        tags=_texts(values.get("tags", values.get("tag"))),
        collections=_texts(values.get("collections", values.get("collection"))),
        links=_rows(values.get("links"), {"to"}),
        timeline=_rows(values.get("timeline"), {"date", "summary"}),
        aliases=_texts(values.get("aliases", values.get("alias"))),
        old_slugs=_texts(values.get("old_slugs")),
    )


def _text(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _texts(value: object) -> tuple[str, ...] | None:
    """Return a list of strings, splitting a single string at its commas, or None for a missing value."""
    if isinstance(value, str):
        plain = value.strip()
        pieces = plain.split() if _HASHED.fullmatch(plain) else _SPLIT.split(plain.strip("[]"))
        texts = [piece.strip().strip("\"'").removeprefix("#").strip("[]") for piece in pieces]
    elif isinstance(value, list):
        texts = [part for part in cast("list[object]", value) if isinstance(part, str)]
    else:
        return None
    return tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))


def _rows(value: object, required_keys: set[str]) -> tuple[Mapping[str, str], ...] | None:
    """Return a list of mappings that contain the keys `needed`, as exports write them, or None.

    An alias can repeat a long row many times in few characters, so rows and their characters are limited.
    """
    if not isinstance(value, list) or not value:
        return None
    items = cast("list[object]", value)
    if len(items) > MAX_ROWS:
        return None
    rows: list[Mapping[str, str]] = []
    chars = 0
    for item in items:
        fields = cast("dict[object, object]", item) if isinstance(item, dict) else {}
        row = {key: text for key in _ROW_KEYS if isinstance(text := fields.get(key), str)}
        chars += sum(map(len, row.values()))
        if not required_keys <= row.keys() or chars > MAX_CHARS:
            return None
        rows.append(row)
    return tuple(rows)


def value(head: str, key: str) -> str:
    """Return the string of a key that `update` wrote, or an empty string."""
    line = next((line for line in inside(head).splitlines() if key_of(line) == key), "")
    return (_parse_scalar(line.partition(":")[2].strip())) if line else ""


def _parse_scalar(text: str) -> str:
    try:
        parsed: Any = yaml.load(text, Loader=_LOADER) if len(text) <= _MAX_LINE else ""  # noqa: S506 - as in `read`
    except (yaml.YAMLError, RecursionError, ValueError):
        return ""
    return parsed if isinstance(parsed, str) else ""


def update(head: str, values: Mapping[str, Value]) -> str:
    """Return a front matter with some keys changed; an empty value removes its key."""
    newline = "\r\n" if "\r\n" in head else "\n"
    opening = _OPEN.match(head)
    if opening is None:
        block_lines = "".join(_line(key, value) + "\n" for key, value in values.items() if value)
        return f"---\n{block_lines}---\n" if block_lines else head
    lines = inside(head).splitlines(keepends=True)
    for key, value in values.items():
        lines = _replace_key(lines, key, _line(key, value) + newline if value else "")
    tail = head[opening.end() + len(inside(head)) :]
    return head[: opening.end()] + "".join(lines) + tail


def _replace_key(lines: list[str], key: str, line: str) -> list[str]:
    """Return the lines with the line of `key`, and its indented lines, replaced or appended."""
    start = next((at for at, text in enumerate(lines) if key_of(text) == key), None)
    if start is None:
        if lines and line and not lines[-1].endswith("\n"):
            lines = [*lines[:-1], lines[-1] + "\n"]
        return [*lines, line] if line else lines
    end = start + 1
    while end < len(lines) and (lines[end][:1] in " \t" or lines[end].startswith(("- ", "-\n", "-\r"))):
        end += 1
    return [*lines[:start], *([line] if line else []), *lines[end:]]


def key_of(line: str) -> str:
    """Return the key at the start of a line in lower case, or an empty string."""
    name, colon, _ = line.partition(":")
    return name.strip().strip("\"'").lower() if colon and line[:1] not in " \t#-" else ""


def _line(key: str, value: Value) -> str:
    """Return `key: value` in YAML's flow style."""
    if isinstance(value, str):
        return f"{key}: {_scalar(value)}"
    if isinstance(value, tuple):
        return f"{key}: [{', '.join(map(_scalar, value))}]"
    rows = (", ".join(f"{name}: {_scalar(text)}" for name, text in row.items()) for row in value)
    return f"{key}: [{', '.join('{' + row + '}' for row in rows)}]"


_BARE = re.compile(r"[^\W\d_][\w/ -]*[\w/]|[^\W\d_]")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def _scalar(text: str) -> str:
    """Return a string as a YAML scalar, quoted if necessary."""
    if _BARE.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
