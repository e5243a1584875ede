"""From a prompt to a scene: tables of words, longest phrase first, inflections folded."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from sixfold.engines.image.scene import shapes

_KINDS = ("time", "weather", "season", "place", "colour", "style")
_LONGEST = 4
_NEGATIONS = frozenset({"no", "without", "sin", "sans", "ohne", "not", "never", "non"})
_TOKEN = re.compile(r"[^\W_]+(?:[-'\u2019&][^\W_]+)*", re.UNICODE)
_NUMBERS = {
    "two": 2, "pair": 2, "couple": 2, "dos": 2, "deux": 2, "zwei": 2, "three": 3, "tres": 3, "trois": 3,
    "drei": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "several": 4, "many": 7, "flock": 7, "herd": 5,
    "school": 7, "group": 5, "pack": 4, "some": 3,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing to draw, and how many of it."""

    name: str
    count: int = 1
    colour: str | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """What a prompt was understood to ask for; empty fields were not mentioned."""

    prompt: str
    time: str | None = None
    weather: str | None = None
    season: str | None = None
    places: tuple[str, ...] = ()
    colours: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    subjects: tuple[Subject, ...] = ()
    avoid: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def known(self) -> bool:
        """Whether there is a place, a subject or a sky to paint."""
        return bool(self.places or self.subjects or self.time or self.weather or self.season)

    def recognised(self) -> dict[str, object]:
        """The recognised words, as a plain record."""
        found: dict[str, object] = {
            "time": self.time,
            "weather": self.weather,
            "season": self.season,
            "places": list(self.places),
            "colours": list(self.colours),
            "styles": list(self.styles),
            "subjects": [{"name": s.name, "count": s.count} for s in self.subjects],
        }
        return {key: value for key, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class _Hit:
    kind: str
    name: str
    start: int
    end: int
    count: int = 1


def _fold(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return folded.replace("\u2019", "'")


def _stems(word: str) -> Iterator[str]:
    """The word, then what it may be an inflection of."""
    yield word
    for ending, least, replacements in (
        ("ies", 2, ("y",)),
        ("ves", 2, ("f", "fe")),
        ("es", 3, ("", "e")),
        ("s", 3, ("",)),
        ("'s", 3, ("",)),
        ("ing", 4, ("", "e")),
        ("ed", 4, ("", "e")),
    ):
        if word.endswith(ending) and len(word) - len(ending) >= least:
            for replacement in replacements:
                yield word[: len(word) - len(ending)] + replacement


_IRREGULAR = {
    "men": "man", "women": "woman", "people": "person", "children": "child", "mice": "mouse",
    "geese": "goose", "wolves": "wolf", "leaves": "leaf", "feet": "foot", "fishes": "fish", "cacti": "cactus",
}  # fmt: skip


@cache
def _tables() -> dict[str, dict[str, list[str]]]:
    text = resources.files("sixfold.engines.image.scene").joinpath("words.toml").read_text("utf-8")
    return tomllib.loads(text)


@cache
def _index() -> tuple[dict[tuple[str, ...], tuple[str, str]], list[tuple[str, str, str]]]:
    """Phrases of folded tokens, and the words of scripts that are written without spaces."""
    entries = [(kind, name, words) for kind in _KINDS for name, words in _tables()[kind].items()]
    entries += [("subject", name, [*shape.words]) for name, shape in shapes.library().items()]
    phrases: dict[tuple[str, ...], tuple[str, str]] = {}
    inside: list[tuple[str, str, str]] = []
    for kind, name, words in entries:
        for word in (name, *words):
            folded = _fold(word)
            if folded and _is_unspaced(folded[0]):
                inside.append((folded, kind, name))
            else:
                phrases.setdefault(tuple(_TOKEN.findall(folded)), (kind, name))
    inside.sort(key=lambda entry: (-len(entry[0]), entry[0]))
    return phrases, inside


@cache
def _together() -> dict[tuple[str, ...], list[str]]:
    """Words that mean together what none of them means alone, and the words that they are read as."""
    return {
        tuple(_TOKEN.findall(_fold(word))): _TOKEN.findall(_fold(meant))
        for meant, words in _tables()["together"].items()
        for word in words
        if not _is_unspaced(word[0])
    }


def _read(tokens: list[str]) -> list[str]:
    """The words as they are meant, the longest of those that belong together first."""
    read: list[str] = []
    at = 0
    while at < len(tokens):
        for length in range(min(_LONGEST, len(tokens) - at), 0, -1):
            head, last = tokens[at : at + length - 1], tokens[at + length - 1]
            keys = [(*head, option) for option in (last, *_stems(last))]
            meant = next((_together()[key] for key in keys if key in _together()), None)
            if meant is not None:
                read += meant
                at += length
                break
        else:
            read.append(tokens[at])
            at += 1
    return read


def _is_unspaced(character: str) -> bool:
    return "\u3040" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff"


def _match(tokens: list[str]) -> Iterator[_Hit]:
    phrases, _ = _index()
    at = 0
    while at < len(tokens):
        for length in range(min(_LONGEST, len(tokens) - at), 0, -1):
            head, last = tokens[at : at + length - 1], tokens[at + length - 1]
            options = [_IRREGULAR.get(last, last), *_stems(last)]
            found = next((phrases[key] for o in options if (key := (*head, o)) in phrases), None)
            if found:
                yield _Hit(*found, at, at + length)
                at += length - 1
                break
        at += 1


def _inside(text: str) -> Iterator[_Hit]:
    _, words = _index()
    for word, kind, name in words:
        at = text.find(word)
        if at >= 0:
            yield _Hit(kind, name, at, at + len(word))
            text = text.replace(word, "\x00" * len(word))


def _count(tokens: list[str], hit: _Hit) -> int:
    for token in reversed(tokens[max(0, hit.start - 3) : hit.start]):
        if token.isdecimal() and len(token) < 3:
            return max(1, min(7, int(token)))
        if token in _NUMBERS:
            return _NUMBERS[token]
    last = tokens[hit.end - 1] if hit.end <= len(tokens) else ""
    plural = last in _IRREGULAR or (last.endswith("s") and not last.endswith(("ss", "us", "is")))
    return 3 if plural and hit.kind == "subject" else 1


def _hits(text: str) -> tuple[list[_Hit], list[str]]:
    folded = _fold(text)
    tokens = _read(_TOKEN.findall(folded))
    hits = list(_match(tokens))
    hits += _inside("".join(c if _is_unspaced(c) else "\x01" for c in folded))
    return hits, tokens


def _names(hits: list[_Hit], kind: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(hit.name for hit in hits if hit.kind == kind))


def _first(names: tuple[str, ...]) -> str | None:
    return names[0] if names else None


def _worn(hits: list[_Hit]) -> dict[_Hit, str]:
    """The colour that stands right before each subject: the subject's own, not the picture's."""
    ends = {hit.end: hit.name for hit in hits if hit.kind == "colour"}
    return {hit: ends[hit.start] for hit in hits if hit.kind == "subject" and hit.start in ends}


def _subjects(hits: list[_Hit], tokens: list[str], worn: dict[_Hit, str]) -> tuple[Subject, ...]:
    found: dict[str, Subject] = {}
    for hit in hits:
        if hit.kind == "subject" and hit.name not in found:
            found[hit.name] = Subject(hit.name, _count(tokens, hit), worn.get(hit))
    return tuple(found.values())[:4]


def _reject(hits: list[_Hit], tokens: list[str], avoid: frozenset[str]) -> list[_Hit]:
    def wanted(hit: _Hit) -> bool:
        before = tokens[max(0, hit.start - 2) : hit.start]
        return hit.name not in avoid and not _NEGATIONS & set(before)

    return [hit for hit in hits if wanted(hit)]


def parse(prompt: str, negative: str = "") -> Scene:
    """What `prompt` asks for, less what it negates and what `negative` names."""
    avoid = frozenset(hit.name for hit in _hits(negative)[0])
    hits, tokens = _hits(prompt)
    worn = _worn(hits)
    denied = frozenset(h.name for h in hits) - frozenset(h.name for h in _reject(hits, tokens, avoid))
    hits = _reject(hits, tokens, avoid)
    subjects = _subjects(hits, tokens, worn)
    painted = set(worn.values())
    colours = tuple(c for c in _names(hits, "colour") if c not in painted)
    weathers = _names(hits, "weather")
    heavy = [w for w in weathers if w not in ("clear", "cloudy")]
    return Scene(
        prompt=prompt,
        time=_first(_names(hits, "time")),
        weather=heavy[0] if heavy else _first(weathers),
        season=_first(_names(hits, "season")),
        places=_names(hits, "place"),
        colours=colours[:3],
        styles=_names(hits, "style"),
        subjects=subjects,
        avoid=avoid | denied,
    )
