"""Parsing of questions about relations, such as "who works at Acme", into relation, side and name.

The questions are next to the patterns in `data/relations.toml`: `who (works|is working) (at|for) {B}`. The
slot in the question is known, and the other slot is requested.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from sixfold.core.memory.relation_extraction import dates, entities
from sixfold.core.memory.relation_extraction.entities import words
from sixfold.core.memory.relation_extraction.patterns import PatternTable

Side = Literal["subject", "object", "both"]
# A longer text is not parsed as a question.
MAX_CHARS = 300
_LEAD = re.compile(
    r"^(?:(?:so|and|ok|okay|hey|please|now|hi)[, ]+)*(?:(?:can|could|would) you (?:please )?)?"
    r"(?:(?:tell|show|remind|give) me (?:again )?|list |find (?:me )?|do (?:you|we) know "
    r"|i (?:want|need|would like) to know |what do (?:you|we) know about )?"
)
_PEOPLE = re.compile(
    r"^(?:(?:which|what) (?:person|people|employees|engineers|colleagues|men|women|ones?|of (?:us|them)"
    r"|friends|developers)"
    r"|(?:all |the |those |any )*(?:people|everyone|everybody|anyone|anybody|persons|somebody|someone|those"
    r"|employees|engineers)"
    r"(?: (?:who|that))?) (?=\w)"
)
_TRAIL = re.compile(
    r"[\s?.!]+$|[, ]+(?:now|today|currently|these days|at the moment|again|please|so far|exactly|at present"
    r"|right now|then)[\s?.!]*$"
)
_MONTHS = re.compile(
    r"\b(?:january|february|march|april|may|june|july|august|september|october|november|december)\b"
)
_WORDS = re.compile(r"[a-z]+")
_GENITIVE = re.compile(r"['’]s?$")
_ARTICLE = re.compile(r"^(?:the|a|an|our|my) ")
_VAGUE = words(
    "is was are were did does do has have who what which where whom whose when why how in on at to of"
    " by for from with the a an it and or be been under would"
)
_MAX_WORDS = 8


class RelationQuestion(NamedTuple):
    """A parsed question; answers are on the side `answer_side` of one of the relations.

    `names` contains the keys in the question, and `moment` its date, or an empty string.
    """

    relations: frozenset[str]
    answer_side: Side
    names: tuple[str, ...]
    moment: str


@dataclass(frozen=True)
class QuestionForm:
    """A question of the table, compiled on first use."""

    relation: str
    source: str
    answer_side: Side
    anchors: frozenset[str]

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The regular expression of the question."""
        return re.compile(self.source)


class QuestionForms:
    """All questions of a table, indexed by their most selective word."""

    def __init__(self, table: PatternTable) -> None:
        self._by_word: dict[str, list[QuestionForm]] = {}
        self._answering = _answering(table)
        self._symmetric = frozenset(name for name, row in table.relations.items() if row.symmetric)
        for relation in table.relations.values():
            for text in relation.ask:
                form = _form(relation.name, text)
                for word in form.anchors or {""}:
                    self._by_word.setdefault(word, []).append(form)

    def read(self, text: str, base: str = "") -> tuple[RelationQuestion, ...]:
        """Parse a text as a question; the result is empty if it does not match a question of the table."""
        if len(text) > MAX_CHARS:
            return ()
        bare, moment = _bare(text, base)
        forms = {id(form): form for word in _WORDS.findall(bare) for form in self._by_word.get(word, ())}
        questions: dict[RelationQuestion, None] = {}
        for form in (*forms.values(), *self._by_word.get("", ())):
            match = form.regex.fullmatch(bare)
            groups: tuple[str, ...] = match.groups() if match is not None else ()
            names = tuple(name for text in groups if (name := _name(text)))
            if names:
                side: Side = (
                    "both" if form.relation in self._symmetric or len(names) > 1 else form.answer_side
                )
                questions[RelationQuestion(self._answering[form.relation], side, names, moment)] = None
        return tuple(questions)


def _answering(table: PatternTable) -> Mapping[str, frozenset[str]]:
    """Return, for each relation, the relations that answer its questions: itself and those that imply it."""
    return {
        name: frozenset({name, *(other for other, row in table.relations.items() if name in row.implies)})
        for name in table.relations
    }


def _bare(text: str, base: str) -> tuple[str, str]:
    """Return the question in lower case without courtesies and dates, and its date."""
    lower = " ".join(text.lower().replace("’", "'").split())
    capitalized = _MONTHS.sub(lambda month: month[0].capitalize(), lower)
    moment = ""
    for date in reversed(dates.find(capitalized, base)):
        moment = date.moment or moment
        lower = lower[: date.start] + lower[date.end :]
        lower = re.sub(r" (?:in|on|during|since|at|of)?\s*(?=[?.!]*$)", "", lower)
    while True:
        shorter = _TRAIL.sub("", lower)
        if shorter == lower:
            break
        lower = shorter
    lower = _LEAD.sub("", " ".join(lower.split()))
    return _PEOPLE.sub("who ", lower), moment


def _name(words_of_name: str) -> str:
    text = _ARTICLE.sub("", _GENITIVE.sub("", words_of_name.strip(" \"'“”,")))
    return entities.key(text) if 0 < len(text.split()) <= _MAX_WORDS else ""


def _form(relation: str, text: str) -> QuestionForm:
    source = ""
    slots = set(re.findall(r"\{([AB])\}", text))
    for piece in re.split(r"(\{\w+\}|\([^()]*\)\??)", text):
        if piece in {"{A}", "{B}"}:
            source += "(.{1,80}?)"
        elif piece == "{words}":
            source += r"(?:[\w'-]+ ){0,4}?"
        elif piece.startswith("("):
            options = "|".join(
                re.escape(option.strip()).replace(r"\{words\}", r"(?:[\w'-]+ ){0,3}[\w'-]+")
                for option in piece.strip("()?").split("|")
            )
            source += f"(?:(?:{options}) )?" if piece.endswith("?") else f"(?:{options})"
        else:
            source += re.escape(piece)
    side: Side = "both" if len(slots) == 2 else "subject" if slots == {"B"} else "object"
    return QuestionForm(relation, source.replace(r"\ ", " ").replace(")?  ", ")? "), side, _anchors(text))


def _anchors(text: str) -> frozenset[str]:
    best: frozenset[str] = frozenset()
    for piece in re.split(r"(\{\w+\}|\([^()]*\)\??)", text):
        if piece.startswith("{") or piece.endswith(")?") or not piece.strip():
            continue
        options = piece.strip("()").split("|") if piece.startswith("(") else [piece]
        words = [
            [word for word in _WORDS.findall(option.replace("'s", "")) if word not in _VAGUE]
            for option in options
        ]
        if all(words):
            longest = frozenset(max(option, key=len) for option in words)
            if not best or min(map(len, longest)) > min(map(len, best)):
                best = longest
    return best
