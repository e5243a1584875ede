"""Slugs: names of pages with segments of letters and digits of any script, `-`, `_` and `.`, joined by `/`.

A slug is in NFC and lower case, so that strings that look equal are equal.
"""

from __future__ import annotations

import re
import unicodedata

from sixfold import errors
from sixfold.core.input_limits.normalization import MAX_DECOMPOSED, normalized

MAX_CHARS = 200
_PLAIN = re.compile(r"[a-z0-9_-](?:[a-z0-9_./-]*[a-z0-9_-])?")
_DASHES = re.compile(r"-{2,}")
_MARKS = frozenset("-_./")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY = re.compile(rf"({'|'.join(_MONTHS)})[a-z]{{0,6}}-(\d{{1,2}})(?:st|nd|rd|th),-(\d{{4}})")
_EXPORT_ID = re.compile(r"(?<=[^/ ]) [0-9a-f]{32}(?=/|\.[A-Za-z0-9]{1,8}$|$)")
# Letters, numbers, and the combining marks that many scripts use for vowels.
_KINDS = frozenset("LNM")


def normalize(text: str, name: str = "slug") -> str:
    """Return the slug for `text`; raises `InvalidInput` of `name` with the first invalid character."""
    if len(text) > MAX_CHARS * MAX_DECOMPOSED:
        raise errors.InvalidInput.of(
            name, f"{name} must have at most {MAX_CHARS} characters (got {len(text)})"
        )
    slug = _fold(text) if text.strip() else ""
    for char in slug:
        if char not in _MARKS and unicodedata.category(char)[0] not in _KINDS:
            raise errors.InvalidInput.of(name, f"{name} must not contain the character {_describe(char)}")
    return _validate(slug, name)


def beginning(text: str) -> str:
    """Return the prefix of slugs that start with `text`, normalized without raising errors."""
    return _fold(text)


def _validate(slug: str, name: str) -> str:
    if not slug:
        raise errors.InvalidInput.of(name, f"{name} must not be empty")
    if len(slug) > MAX_CHARS:
        raise errors.InvalidInput.of(
            name, f"{name} must have at most {MAX_CHARS} characters (got {len(slug)})"
        )
    if _PLAIN.fullmatch(slug) and "//" not in slug and "/." not in slug and "./" not in slug:
        return slug
    for segment in slug.split("/"):
        if not segment:
            raise errors.InvalidInput.of(
                name, f"{name} must not have an empty segment: use '/' only between segments"
            )
        if not segment.strip("."):
            raise errors.InvalidInput.of(
                name, f"{name} must not have the segment '{segment}', which consists only of dots"
            )
        if _is_mark(segment[0]):
            raise errors.InvalidInput.of(
                name, f"{name} must not begin a segment with the character {_describe(segment[0])}"
            )
    return slug


def _fold(text: str) -> str:
    """Return `text` in NFC and lower case with `-` for spaces; the result is stable."""
    if text.isascii():
        return text.lower().replace(" ", "-")
    folded = normalized("NFC", normalized("NFC", text).lower())
    return "".join("-" if unicodedata.category(char) == "Zs" else char for char in folded)


def _describe(char: str) -> str:
    name = unicodedata.name(char, "")
    code = f"U+{ord(char):04X}"
    return f"'{char}' ({code} {name})" if name and char.isprintable() else f"{code} {name}".strip()


def loosely(text: str) -> str | None:
    """Return the slug nearest to a file path or link text, or None if all characters are invalid.

    A valid segment is unchanged, and an outliner's day (`Nov 20th, 2026`) becomes its date. In other
    segments, a run of invalid characters becomes one `-`, so that a link resolves to the page of the file
    with that name.
    """
    segments = (_segment(part) for part in _fold(text.strip()).split("/"))
    return "/".join(part for part in segments if part)[:MAX_CHARS].rstrip("/") or None


def without_ids(path: str) -> str:
    """Return a path without the ids of 32 digits that Notion adds to the names of exported files."""
    return _EXPORT_ID.sub("", path)


def title_of_file(path: str, slug: str) -> str:
    """Return the name of a page's file without its ending, or "" if the slug is not made from this name."""
    stem = without_ids(path).rpartition("/")[2].rpartition(".")[0]
    return normalized("NFC", stem) if stem and loosely(stem) == name(slug) else ""


def _segment(part: str) -> str:
    if not part.strip("."):
        return ""
    if _PLAIN.fullmatch(part) or (all(_may_stand(char) for char in part) and not _is_mark(part[0])):
        return part
    day = _DAY.fullmatch(part)
    if day is not None:
        return f"{day[3]}-{_MONTHS.index(day[1]) + 1:02}-{int(day[2]):02}"
    segment = "".join(char if _may_stand(char) else "-" for char in part)
    segment = _DASHES.sub("-", segment).rstrip("-")
    segment = segment[
        next((at for at, char in enumerate(segment) if char != "-" and not _is_mark(char)), len(segment)) :
    ]
    return segment if segment.strip(".") else ""


def _is_mark(char: str) -> bool:
    return unicodedata.category(char)[0] == "M"


def _may_stand(char: str) -> bool:
    return char in _MARKS or unicodedata.category(char)[0] in _KINDS


def name(slug: str) -> str:
    """Return the last segment of a slug."""
    return slug.rpartition("/")[2]


def parent(slug: str) -> str:
    """Return the part before the last segment, or an empty string at the top level."""
    return slug.rpartition("/")[0]


def folders(slug: str) -> list[tuple[str, str]]:
    """Return the parent (up to its `/`) and the name of every folder that contains a page."""
    steps = slug.split("/")[:-1]
    return [("".join(f"{step}/" for step in steps[:depth]), name) for depth, name in enumerate(steps)]


def parent_prefixes(folder: str) -> list[str]:
    """Return the slug prefixes of a folder and its parents, up to their `/`, outermost first."""
    return [f"{before}{name}/" for before, name in folders(f"{folder}/")]
