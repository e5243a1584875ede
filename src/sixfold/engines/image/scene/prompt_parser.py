"""From a prompt to a scene: tables of words, longest phrase first, inflections folded."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from sixfold.core.normalization import normalized
from sixfold.engines.image.scene import prompt_relations, shapes

_KINDS = ("time", "weather", "season", "place", "colour", "style", "frame", "backdrop")
_LONGEST = 4
_NEGATIONS = frozenset({"no", "without", "sin", "sans", "ohne", "not", "never", "non"})
_TOKEN = re.compile(r"[^\W_]+(?:[-'\u2019&][^\W_]+)*", re.UNICODE)


@dataclass(frozen=True, slots=True)
class SceneSubject:
    """One thing to draw, and how many of it."""

    name: str
    count: int = 1
    color: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedScene:
    """What a prompt was understood to ask for; empty fields were not mentioned."""

    prompt: str
    time: str | None = None
    weather: str | None = None
    season: str | None = None
    places: tuple[str, ...] = ()
    colors: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    subjects: tuple[SceneSubject, ...] = ()
    frame: str | None = None  # `portrait`: one head fills the image; `icon`: one flat thing does
    backdrop: str | None = None  # the color of the paper or wall behind everything
    surface: str | None = None  # what the wall behind everything is made of
    worn: tuple[tuple[str, str], ...] = ()  # a part's role, and its color
    letters: str = ""
    link: tuple[str, str, str] | None = None  # `on`, `hold`, `in` or `at`, who, what
    strange: bool = False  # whether it names what nothing is known of
    avoid: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def known(self) -> bool:
        """Whether there is a place, a subject or a sky to paint."""
        seen = self.places or self.subjects or self.time or self.weather or self.season
        return bool(seen or self.letters or self.frame)

    def recognised(self) -> dict[str, object]:
        """The recognised words, as a plain record."""
        found: dict[str, object] = {
            "time": self.time,
            "weather": self.weather,
            "season": self.season,
            "places": list(self.places),
            "colours": list(self.colors),
            "styles": list(self.styles),
            "subjects": [{"name": s.name, "count": s.count} for s in self.subjects],
            "frame": self.frame,
            "backdrop": self.backdrop,
            "surface": self.surface,
            "letters": self.letters,
        }
        return {key: value for key, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class _WordMatch:
    kind: str
    name: str
    start: int
    end: int
    count: int = 1


def _fold(text: str) -> str:
    folded = normalized("NFKC", text).casefold()
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
    entries += [("subject", name, [*shape.words]) for name, shape in shapes.library().items() if shape.words]
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


@cache
def _dressed() -> dict[str, list[tuple[str, str]]]:
    """What a word says of somebody's parts: each part's role and its color."""
    return {
        word: [(role, color) for role, color in (part.split(" ") for part in meant.split(", "))]
        for meant, words in _tables()["worn"].items()
        for word in words
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


def _match(tokens: list[str]) -> Iterator[_WordMatch]:
    phrases, _ = _index()
    at = 0
    while at < len(tokens):
        for length in range(min(_LONGEST, len(tokens) - at), 0, -1):
            head, last = tokens[at : at + length - 1], tokens[at + length - 1]
            options = [_IRREGULAR.get(last, last), *_stems(last)]
            found = next((phrases[key] for o in options if (key := (*head, o)) in phrases), None)
            if found:
                yield _WordMatch(*found, at, at + length)
                at += length - 1
                break
        at += 1


def _inside(text: str) -> Iterator[_WordMatch]:
    _, words = _index()
    for word, kind, name in words:
        at = text.find(word)
        if at >= 0:
            yield _WordMatch(kind, name, at, at + len(word))
            text = text.replace(word, "\x00" * len(word))


def _count(tokens: list[str], hit: _WordMatch, after: int) -> int:
    """How many of it are meant, by the word's form and the words before it from the `after`th on."""
    named = prompt_relations.count(tokens[max(after, hit.start - 4) : hit.start])
    if named is not None:
        return named
    last = tokens[hit.end - 1] if hit.end <= len(tokens) else ""
    if (last not in _IRREGULAR or hit.end - hit.start > 1) and tuple(tokens[hit.start : hit.end]) in _index()[
        0
    ]:
        return 1  # fries, sneakers, a vase of flowers: one thing, however it is spelled
    plural = last in _IRREGULAR or (last.endswith("s") and not last.endswith(("ss", "us", "is")))
    return 3 if plural and hit.kind == "subject" else 1


def _hits(text: str) -> tuple[list[_WordMatch], list[str]]:
    folded = _fold(text)
    tokens = _read(_TOKEN.findall(folded))
    hits = list(_match(tokens))
    hits += _inside("".join(c if _is_unspaced(c) else "\x01" for c in folded))
    return hits, tokens


def _names(hits: list[_WordMatch], kind: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(hit.name for hit in hits if hit.kind == kind))


def _first(names: tuple[str, ...]) -> str | None:
    return names[0] if names else None


def _worn(hits: list[_WordMatch]) -> dict[_WordMatch, str]:
    """The color that stands right before each subject, or a word before it: the subject's own."""
    ends = {hit.end: hit.name for hit in hits if hit.kind == "colour"}
    taken = {at for hit in hits for at in range(hit.start, hit.end)}
    found: dict[_WordMatch, str] = {}
    for hit in hits:
        if hit.kind == "subject":
            near = hit.start if hit.start in ends or hit.start - 1 in taken else hit.start - 1
            if near in ends:
                found[hit] = ends[near]
    return found


def _backdrop(hits: list[_WordMatch]) -> str | None:
    """The color that stands at the word for what is behind: `white background`, `fondo blanco`."""
    placed = any(h.kind == "place" for h in hits)
    for hit in (h for h in hits if h.kind == "backdrop" and (h.name == "plain" or not placed)):
        for color in (h for h in hits if h.kind == "colour"):
            if 0 <= hit.start - color.end < 2 or 0 <= color.start - hit.end < 1:
                return color.name
    return None


def _parts(hits: list[_WordMatch], tokens: list[str]) -> tuple[tuple[str, str], ...]:
    """What is worn in which color: the color stands right before its word, or one before that."""
    found: dict[str, str] = {}
    for hit in (h for h in hits if h.kind == "colour"):
        for token in tokens[hit.end : hit.end + 2]:
            role = prompt_relations.WORN.get(token)
            if role:
                found.setdefault(role, hit.name)
                break
    for token in tokens:
        if token in prompt_relations.WORN:
            found.setdefault(prompt_relations.WORN[token], "")
        for role, color in _dressed().get(token, ()):
            found[role] = found.get(role) or ("" if role in found and color == "none" else color)
    return tuple(found.items())


def _link(hits: list[_WordMatch], tokens: list[str]) -> tuple[str, str, str] | None:
    """Who is on whom, or holds what: the words between two subjects tell."""
    named = sorted((h for h in hits if h.kind == "subject"), key=lambda hit: hit.start)
    for first, second in itertools.pairwise(named):
        how = prompt_relations.link(tokens[first.end : second.start])
        if how is not None and first.name != second.name:
            return ("in", second.name, first.name) if how == "of" else (how, first.name, second.name)
    return None


def _frame(subjects: tuple[SceneSubject, ...], hits: list[_WordMatch], tokens: list[str]) -> str | None:
    """How the image is framed: as it says, or round one face that is told of and stands nowhere."""
    frame = _first(_names(hits, "frame"))
    alone = len(subjects) == 1 and subjects[0].count == 1 and subjects[0].name in prompt_relations.BUSTS
    if frame is None and alone and not _names(hits, "place") and prompt_relations.FACED & set(tokens):
        return "portrait"
    return frame


def _framed(
    subjects: tuple[SceneSubject, ...], hits: list[_WordMatch], prompt: str, frame: str | None
) -> tuple[SceneSubject, ...]:
    """What a frame or what is to be read makes of the subjects."""
    if frame == "portrait":
        first = subjects[0] if subjects else SceneSubject("woman")
        return (
            SceneSubject(prompt_relations.BUSTS.get(first.name, first.name), 1, first.color),
            *subjects[1:],
        )
    if prompt_relations.letters(prompt) and frame is None and "neon" not in prompt.casefold():
        plain = any(h.kind == "backdrop" or h.name == "studio" for h in hits)
        others = tuple(s for s in subjects if s.name != "signboard")
        return subjects if plain else (*others[:3], SceneSubject("signboard"))
    people = {"person", "woman", "child"}
    if any(s.name == "umbrella" and s.count == 1 for s in subjects):
        return tuple(s for s in subjects if s.name not in people)
    return subjects


def _of_the_picture(hits: list[_WordMatch], tokens: list[str]) -> list[_WordMatch]:
    """The colors that are nobody's: an unknown thing keeps the color before it to itself."""
    starts = {hit.start: hit for hit in hits}
    own = {"weather", "subject", "backdrop"}  # white clouds whiten no image

    def free(hit: _WordMatch) -> bool:
        following = tokens[hit.end] if hit.end < len(tokens) else None
        after = starts.get(hit.end)
        if after is not None and after.kind in own:
            return False
        return prompt_relations.whole(following, after is not None)

    return [hit for hit in hits if hit.kind == "colour" and free(hit)]


def _subjects(
    hits: list[_WordMatch], tokens: list[str], worn: dict[_WordMatch, str]
) -> tuple[SceneSubject, ...]:
    found: dict[str, SceneSubject] = {}
    people_end, end = -1, 0
    for hit in sorted((h for h in hits if h.kind == "subject"), key=lambda h: h.start):
        again = hit.name in prompt_relations.PEOPLE and (
            hit.start == people_end or tokens[hit.start] in prompt_relations.DOING
        )
        if again and prompt_relations.PEOPLE & found.keys():
            continue
        people_end = hit.end if hit.name in prompt_relations.PEOPLE else -1
        if hit.name not in found:
            found[hit.name] = SceneSubject(hit.name, _count(tokens, hit, end), worn.get(hit))
        end = hit.end
    return tuple(found.values())[:4]


def _strange(hits: list[_WordMatch], tokens: list[str]) -> bool:
    """Whether a word of the prompt may be a thing that nothing is known of."""
    known = {at for hit in hits for at in range(hit.start, hit.end)}
    return any(
        at not in known and len(token) > 2 and token not in prompt_relations.SAID
        for at, token in enumerate(tokens)
    )


def _reject(hits: list[_WordMatch], tokens: list[str], avoid: frozenset[str]) -> list[_WordMatch]:
    def wanted(hit: _WordMatch) -> bool:
        before = tokens[max(0, hit.start - 2) : hit.start]
        return hit.name not in avoid and not _NEGATIONS & set(before)

    return [hit for hit in hits if wanted(hit)]


def parse(prompt: str, negative: str = "") -> ParsedScene:
    """What `prompt` asks for, less what it negates and what `negative` names."""
    avoid = frozenset(hit.name for hit in _hits(negative)[0])
    hits, tokens = _hits(prompt)
    worn, strange = _worn(hits), _strange(hits, tokens)
    denied = frozenset(h.name for h in hits) - frozenset(h.name for h in _reject(hits, tokens, avoid))
    hits = _reject(hits, tokens, avoid)
    subjects = _subjects(hits, tokens, worn)
    frame = _frame(subjects, hits, tokens)
    subjects = _framed(subjects, hits, prompt, frame)
    styles = _names(hits, "style")
    backdrop = _backdrop(hits)
    things = subjects or _names(hits, "place")
    grading = _of_the_picture(hits, tokens) if things and "abstract" not in styles else hits
    if backdrop is None and any(h.name == "studio" for h in hits):
        backdrop = _first(_names(grading, "colour"))  # isolated on white
    painted = {*worn.values(), backdrop}
    colors = tuple(c for c in _names(grading, "colour") if c not in painted)
    weathers = _names(hits, "weather")
    heavy = [w for w in weathers if w not in ("clear", "cloudy")]
    places = _names(hits, "place")
    surface = next((name for name in _names(hits, "backdrop") if name != "plain" and not places), None)
    studio = ("studio",) if surface or backdrop else ()
    return ParsedScene(
        prompt=prompt,
        time=_first(_names(hits, "time")),
        weather=heavy[0] if heavy else _first(weathers),
        season=_first(_names(hits, "season")),
        places=tuple(dict.fromkeys((*studio, *places))),
        colors=colors[:3],
        styles=styles,
        subjects=subjects,
        frame=frame,
        backdrop=backdrop,
        surface=surface,
        worn=_parts(hits, tokens),
        letters=prompt_relations.letters(prompt),
        link=_link(hits, tokens),
        strange=strange,
        avoid=avoid | denied,
    )
