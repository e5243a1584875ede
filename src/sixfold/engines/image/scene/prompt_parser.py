"""Parser of prompts into scenes by word tables: longest phrases first, inflections folded."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import resources

import msgspec
from msgspec.structs import replace

from sixfold.core.catalog.prompt_words import NO_WORDS, PromptWords
from sixfold.engines.image.scene import prompt_relations, shapes
from sixfold.engines.image.scene.words import color_words, compounds, place_choice, weather, word_usage
from sixfold.engines.image.scene.words.compounds import PromptTokens, WordMatch
from sixfold.engines.prompt_words import fold

_KINDS = ("time", "weather", "season", "place", "colour", "style", "frame", "backdrop")
# Kinds whose words are nouns only: the verb "park" does not name a park, and "cooking" not a cook.
_NOUNS = frozenset({"time", "weather", "season", "place", "subject"})
_LONGEST = 4
_WITHOUT_SKY = place_choice.WITHOUT_WEATHER | {"forest"}
_NEGATIONS = frozenset({"no", "without", "sin", "sans", "ohne", "not", "never", "non"})
_TOKEN = re.compile(r"[^\W_]+(?:[-'\u2019&][^\W_]+)*", re.UNICODE)


class SceneSubject(msgspec.Struct, frozen=True):
    """A subject to draw and its number of copies."""

    name: str
    count: int = 1
    color: str | None = None


class ParsedScene(msgspec.Struct, frozen=True):
    """The recognized content of a prompt; fields for content that the prompt lacks are empty."""

    prompt: str
    time: str | None = None
    weather: str | None = None
    season: str | None = None
    places: tuple[str, ...] = ()
    colors: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    subjects: tuple[SceneSubject, ...] = ()
    # `portrait`: one head fills the image; `icon`: one flat object fills the image.
    frame: str | None = None
    # Color of the paper or wall in the background.
    backdrop: str | None = None
    # Material of the wall in the background.
    surface: str | None = None
    # Color of the land, or of the water of a lake, river or sea.
    ground: str | None = None
    # Color of the sky.
    sky: str | None = None
    # Roles of worn parts and their colors.
    worn: tuple[tuple[str, str], ...] = ()
    letters: str = ""
    # Relation (`on`, `hold`, `in` or `at`), subject and object.
    link: tuple[str, str, str] | None = None
    # True if the prompt names something unknown.
    strange: bool = False
    # False for a room or another place without a sky, where no weather is drawn.
    shows_weather: bool = True
    has_sky: bool = True
    # True if the sky shows a rainbow, lightning in a weather other than a storm, or the moon through clouds.
    has_rainbow: bool = False
    has_lightning: bool = False
    has_moon: bool = False
    avoid: frozenset[str] = msgspec.field(default_factory=frozenset[str])
    words: PromptWords = NO_WORDS

    @property
    def known(self) -> bool:
        """True if the prompt contains a place, a subject or a sky to paint."""
        recognized = self.places or self.subjects or self.time or self.weather or self.season
        return bool(recognized or self.letters or self.frame or self.sky)

    @property
    def names_colors(self) -> bool:
        """Whether the prompt assigns a color to the image or a part of it."""
        worn = any(color not in ("", "none") for _, color in self.worn)
        return bool(
            self.colors
            or self.backdrop
            or self.ground
            or worn
            or any(subject.color for subject in self.subjects)
        )

    def recognized(self) -> dict[str, object]:
        """Return the recognized words as a JSON-compatible record."""
        record: dict[str, object] = {
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
            "ground": self.ground,
            "sky": self.sky,
            "letters": self.letters,
        }
        return {key: value for key, value in record.items() if value}


def _stems(word: str) -> Iterator[str]:
    """Yield the word and the words of which it may be an inflection."""
    yield word
    for ending, minimum, replacements in (
        ("ies", 2, ("y",)),
        ("ves", 2, ("f", "fe")),
        ("es", 3, ("", "e")),
        ("s", 3, ("",)),
        ("'s", 3, ("",)),
        ("ing", 4, ("", "e")),
        ("ed", 4, ("", "e")),
    ):
        if word.endswith(ending) and len(word) - len(ending) >= minimum:
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
    """Return two tables of words, with the kind and name of each.

    The first contains phrases of folded tokens; the second is a list of words in scripts without spaces,
    longest first.
    """
    entries = [(kind, name, words) for kind in _KINDS for name, words in _tables()[kind].items()]
    entries += [("subject", name, [*shape.words]) for name, shape in shapes.library().items() if shape.words]
    phrases: dict[tuple[str, ...], tuple[str, str]] = {}
    inside: list[tuple[str, str, str]] = []
    for kind, name, words in entries:
        for word in (name, *words):
            folded = fold(word)
            if folded and _is_unspaced(folded[0]):
                inside.append((folded, kind, name))
            else:
                phrases.setdefault(tuple(_TOKEN.findall(folded)), (kind, name))
    inside.sort(key=lambda entry: (-len(entry[0]), entry[0]))
    return phrases, inside


@cache
def _phrases() -> dict[tuple[str, ...], list[str]]:
    """Return idiomatic phrases and the words that replace them."""
    return {
        tuple(_TOKEN.findall(fold(word))): _TOKEN.findall(fold(meaning))
        for meaning, words in _tables()["together"].items()
        for word in words
        if not _is_unspaced(word[0])
    }


@cache
def _worn_parts() -> dict[str, list[tuple[str, str]]]:
    """Return the roles and colors of worn parts by the word that implies them, such as a trade."""
    return {
        word: [(role, color) for role, color in (part.split(" ") for part in meaning.split(", "))]
        for meaning, words in _tables()["worn"].items()
        for word in words
    }


def _tokenize(folded: str) -> PromptTokens:
    """Return the tokens of a folded prompt, with phrases replaced by their meaning, longest first."""
    matches = list(_TOKEN.finditer(folded))
    tokens = [match[0] for match in matches]
    gaps = [folded[a.end() : b.start()] for a, b in itertools.pairwise(matches)]
    adjacent = [False, *(not gap.strip(" -") for gap in gaps)]
    result = PromptTokens(folded, [], [], [])
    at = 0
    while at < len(tokens):
        meaning, length = _meaning(tokens, at)
        span = (matches[at].start(), matches[at + length - 1].end())
        for index, word in enumerate(meaning):
            result.words.append(word)
            result.spans.append(span)
            result.joined.append(index == 0 and adjacent[at])
        at += length
    return result


def _meaning(tokens: list[str], at: int) -> tuple[list[str], int]:
    """Return the replacement of the longest phrase or word at a position, and the number of its tokens."""
    for length in range(min(_LONGEST, len(tokens) - at), 0, -1):
        head, last = tokens[at : at + length - 1], tokens[at + length - 1]
        keys = [(*head, option) for option in (last, *_stems(last))]
        meaning = next((_phrases()[key] for key in keys if key in _phrases()), None)
        if meaning is not None:
            return meaning, length
    return [tokens[at]], 1


def _is_unspaced(character: str) -> bool:
    return "\u3040" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff"


def _entry(head: list[str], option: str, last: str) -> tuple[str, str] | None:
    """Return the kind and name of a phrase with `option` as its last word, or None.

    A verb does not count as a place.
    """
    entry = _index()[0].get((*head, option))
    is_verb = option != last and last.endswith(("ing", "ed"))
    return None if entry is None or (is_verb and entry[0] in _NOUNS) else entry


def _match(tokens: list[str]) -> Iterator[WordMatch]:
    at = 0
    while at < len(tokens):
        for length in range(min(_LONGEST, len(tokens) - at), 0, -1):
            head, last = tokens[at : at + length - 1], tokens[at + length - 1]
            options = [_IRREGULAR.get(last, last), *_stems(last)]
            entry = next((each for o in options if (each := _entry(head, o, last)) is not None), None)
            if entry:
                yield WordMatch(*entry, at, at + length)
                at += length - 1
                break
        at += 1


def _inside(text: str) -> Iterator[WordMatch]:
    _, words = _index()
    for word, kind, name in words:
        at = text.find(word)
        if at >= 0:
            yield WordMatch(kind, name, at, at + len(word), inside=True)
            text = text.replace(word, "\x00" * len(word))


def _count(tokens: list[str], hit: WordMatch, after: int) -> int:
    """Return the number of copies, from the word's form and the words before it, starting at `after`."""
    count = prompt_relations.count(tokens[max(after, hit.start - 4) : hit.start])
    if count is not None:
        return count
    last = tokens[hit.end - 1] if hit.end <= len(tokens) else ""
    if (last not in _IRREGULAR or hit.end - hit.start > 1) and tuple(tokens[hit.start : hit.end]) in _index()[
        0
    ]:
        # Entries that are plural themselves, such as fries or sneakers, are one subject.
        return 1
    plural = last in _IRREGULAR or (last.endswith("s") and not last.endswith(("ss", "us", "is")))
    return 3 if plural and hit.kind == "subject" else 1


def _hits(text: str) -> tuple[list[WordMatch], PromptTokens]:
    tokens = _tokenize(fold(text))
    hits = compounds.heads(list(_match(tokens.words)), tokens)
    hits += _inside("".join(c if _is_unspaced(c) else "\x01" for c in tokens.folded))
    return hits, tokens


def _names(hits: list[WordMatch], kind: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(hit.name for hit in hits if hit.kind == kind))


def _first(names: tuple[str, ...]) -> str | None:
    return names[0] if names else None


def _parts(hits: list[WordMatch], tokens: list[str]) -> tuple[tuple[str, str], ...]:
    """Return the worn parts and their colors; a color stands directly before its word or one word earlier."""
    parts: dict[str, str] = {}
    for hit in (h for h in hits if h.kind == "colour"):
        for token in tokens[hit.end : hit.end + 2]:
            role = prompt_relations.WORN_ROLES.get(token)
            if role:
                parts.setdefault(role, hit.name)
                break
    for token in tokens:
        if token in prompt_relations.WORN_ROLES:
            parts.setdefault(prompt_relations.WORN_ROLES[token], "")
        for role, color in _worn_parts().get(token, ()):
            parts[role] = parts.get(role) or ("" if role in parts and color == "none" else color)
    return tuple(parts.items())


def _link(hits: list[WordMatch], tokens: list[str]) -> tuple[str, str, str] | None:
    """Return the relation between two subjects from the words between them, or None.

    The tuple contains the relation, the subject and the object.
    """
    subjects = sorted((h for h in hits if h.kind == "subject"), key=lambda hit: hit.start)
    for first, second in itertools.pairwise(subjects):
        how = prompt_relations.link(tokens[first.end : second.start])
        if how is not None and first.name != second.name:
            return ("in", second.name, first.name) if how == "of" else (how, first.name, second.name)
    return None


def _frame(subjects: tuple[SceneSubject, ...], hits: list[WordMatch], tokens: list[str]) -> str | None:
    """Return the requested framing, `portrait` if the prompt describes one person's face, or None."""
    frame = _first(_names(hits, "frame"))
    alone = len(subjects) == 1 and subjects[0].count == 1 and subjects[0].name in prompt_relations.BUSTS
    if frame is None and alone and not _names(hits, "place") and prompt_relations.FACE_WORDS & set(tokens):
        return "portrait"
    return frame


def _fit_frame(
    subjects: tuple[SceneSubject, ...], hits: list[WordMatch], prompt: str, frame: str | None
) -> tuple[SceneSubject, ...]:
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


def _subjects(
    hits: list[WordMatch], tokens: list[str], worn: dict[WordMatch, str]
) -> tuple[SceneSubject, ...]:
    subjects: dict[str, SceneSubject] = {}
    people_end, end = -1, 0
    for hit in sorted((h for h in hits if h.kind == "subject"), key=lambda h: h.start):
        again = hit.name in prompt_relations.PEOPLE and (
            hit.start == people_end or tokens[hit.start] in prompt_relations.ACTIVITIES
        )
        if again and prompt_relations.PEOPLE & subjects.keys():
            continue
        people_end = hit.end if hit.name in prompt_relations.PEOPLE else -1
        if hit.name not in subjects:
            subjects[hit.name] = SceneSubject(hit.name, _count(tokens, hit, end), worn.get(hit))
        end = hit.end
    return tuple(subjects.values())[:4]


def _has_unknown(hits: list[WordMatch], tokens: list[str]) -> bool:
    """Return whether a word of the prompt may name something unknown."""
    covered = {at for hit in hits for at in range(hit.start, hit.end)}
    return any(
        at not in covered and len(token) > 2 and token not in prompt_relations.IGNORED_WORDS
        for at, token in enumerate(tokens)
    )


def _reject(hits: list[WordMatch], tokens: list[str], avoid: frozenset[str]) -> list[WordMatch]:
    def accepted(hit: WordMatch) -> bool:
        before = tokens[max(0, hit.start - 2) : hit.start]
        return hit.name not in avoid and not _NEGATIONS & set(before)

    return [hit for hit in hits if accepted(hit)]


def _homes(subjects: tuple[SceneSubject, ...]) -> tuple[str, ...]:
    """Return the usual place of the subjects, or of those that belong indoors if there are any."""
    drawings = [shapes.library()[subject.name] for subject in subjects]
    indoors = [drawing for drawing in drawings if drawing.stand in shapes.INDOORS]
    return (indoors or drawings)[0].home[:1] if drawings else ()


def _is_outside(
    places: tuple[str, ...], styles: tuple[str, ...], frame: str | None, without: frozenset[str]
) -> bool:
    outside = not places or place_choice.choose(places) not in without
    return outside and "abstract" not in styles and frame != "icon"


def parse(prompt: str, negative: str = "") -> ParsedScene:
    """Parse `prompt`, without the subjects that it negates or that `negative` names."""
    avoid = frozenset(hit.name for hit in _hits(negative)[0])
    all_hits, prompt_tokens = _hits(prompt)
    hits = all_hits
    tokens = prompt_tokens.words
    worn, strange = color_words.of_subjects(hits), _has_unknown(hits, tokens)
    denied = frozenset(h.name for h in hits) - frozenset(h.name for h in _reject(hits, tokens, avoid))
    hits = _reject(hits, tokens, avoid)
    subjects = _subjects(hits, tokens, worn)
    frame = _frame(subjects, hits, tokens)
    subjects = _fit_frame(subjects, hits, prompt, frame)
    styles = _names(hits, "style")
    places = _names(hits, "place")
    things = subjects or places
    backdrop = color_words.of_backdrop(hits)
    surface = next((name for name in _names(hits, "backdrop") if name != "plain" and not places), None)
    studio = ("studio",) if surface or backdrop else ()
    around = (*studio, *places) or _homes(subjects)
    has_sky = _is_outside(around, styles, frame, _WITHOUT_SKY)
    sky = color_words.of_sky(hits, tokens) if has_sky else None
    grading = hits
    if (things or sky) and "abstract" not in styles:
        grading = color_words.of_image(hits, prompt_tokens, _undrawn().things, sky)
    if backdrop is None and "studio" in places:
        # For example in "isolated on white".
        backdrop = _first(_names(grading, "colour"))
    painted = {*worn.values(), backdrop}
    colors = tuple(c for c in _names(grading, "colour") if c not in painted)
    weathers, has_lightning = _names(hits, "weather"), weather.names_lightning(hits, prompt_tokens)
    scene = ParsedScene(
        prompt=prompt,
        time=_first(_names(hits, "time")),
        weather=weather.choose(weathers, has_lightning=has_lightning),
        season=_first(_names(hits, "season")),
        places=tuple(dict.fromkeys((*studio, *places))),
        colors=colors[:3],
        styles=styles,
        subjects=subjects,
        frame=frame,
        backdrop=backdrop,
        surface=surface,
        ground=color_words.of_ground(places, color_words.of_places(hits)),
        sky=sky,
        worn=_parts(hits, tokens),
        letters=prompt_relations.letters(prompt),
        link=_link(hits, tokens),
        strange=strange,
        shows_weather=_is_outside(around, styles, frame, place_choice.WITHOUT_WEATHER),
        has_sky=has_sky,
        has_rainbow="fair" in weathers and has_sky,
        has_lightning=has_lightning and _is_outside(around, styles, frame, place_choice.WITHOUT_WEATHER),
        has_moon=weather.names_moon(hits, prompt_tokens),
        avoid=avoid | denied,
    )
    return replace(scene, words=_words(scene, all_hits, prompt_tokens))


def _words(scene: ParsedScene, hits: list[WordMatch], tokens: PromptTokens) -> PromptWords:
    """Return the prompt words that the scene uses, including negated ones, and those that it ignores."""
    subjects = scene.subjects[:1] if scene.frame == "portrait" else scene.subjects
    busts = {name for name, bust in prompt_relations.BUSTS.items() if any(s.name == bust for s in subjects)}
    hidden = {"person", "woman", "child"} if any(s.name == "umbrella" for s in subjects) else set()
    colors = {subject.color for subject in subjects} | {color for _, color in scene.worn}
    colors |= {scene.backdrop, scene.ground, scene.sky, *scene.colors}
    names = (
        {s.name for s in subjects} | busts | hidden | {*scene.styles, scene.surface} | colors | scene.avoid
    )
    drawn = {name for name in names if name}
    return word_usage.read(scene, tokens, hits, drawn, _undrawn())


@cache
def _undrawn() -> word_usage.UndrawnWords:
    """Return the words for which only something similar, or only a color, is drawn."""
    similar = frozenset(word for words in _tables()["approximate"].values() for word in words)
    return word_usage.UndrawnWords(similar, frozenset(_tables()["thing"]["color"]))
