"""The table of relations: the compiled patterns of `data/relations.toml`.

A pattern is a readable line such as `{A} (works|is working) (at|for) {B}`. `(x|y)` is a choice, `(x)?` is
optional, `{A}` and `{B}` are names or lists of names, `{role}` is an occupation, and `{clause}` is the rest
of the sentence. Each pattern is compiled to one bounded regular expression for masked sentences
(`entities.mask`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from sixfold.core.memory.indexing import english
from sixfold.core.memory.relation_extraction.entities import (
    DATE_0,
    DATE_END,
    NAME_0,
    NAME_END,
    Vocabulary,
    words,
)

MENTION = f"[{chr(NAME_0)}-{chr(NAME_END)}]"
DATE = f"[{chr(DATE_0)}-{chr(DATE_END)}]"
_LIST = rf"{MENTION}(?:(?:,? and |, | & |,? as well as |,? along with |,? together with ){MENTION}){{0,30}}"
_ASIDE = r"(?:,? (?:who|which|that)|, [^,;:.]{2,80},| \([^()]{1,80}\))?"
_WORDS = re.compile(r"[a-z]+")
_TOKEN = re.compile(r"\{(\w+)\}|\(([^()]*)\)(\?)?|([^\s{}()]+)|(\s+)")
_VAGUE = words(
    "is was are were be been being has had have a an the of at for to in on by with as from and or"
    " that who which it"
) | set(english.POSSESSIVES)


class Relation(msgspec.Struct, frozen=True):
    """A kind of relation: the kinds of pages that it connects (empty: any), and its questions.

    `past` is the relation of its patterns in the past tense; `implies` contains relations whose questions it
    also answers.
    """

    name: str
    subjects: frozenset[str]
    objects: frozenset[str]
    past: str = ""
    otherwise: str = ""
    implies: tuple[str, ...] = ()
    fields: frozenset[str] = frozenset()
    inverse_fields: frozenset[str] = frozenset()
    ask: tuple[str, ...] = ()
    symmetric: bool = False


@dataclass(frozen=True)
class Pattern:
    """A line of the table, compiled on first use."""

    id: str
    relation: str
    source: str
    anchors: frozenset[str]
    openers: frozenset[str]
    example: str
    means: tuple[str, str]
    text: str
    anywhere: bool = False

    @property
    def names(self) -> int:
        """The number of names in a matching sentence."""
        return 1 if "{clause}" in self.text else 2

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The regular expression of the line."""
        return re.compile(self.source)


class PatternTable(msgspec.Struct, frozen=True):
    """All relations and patterns, with the vocabulary that the parser needs."""

    relations: Mapping[str, Relation]
    patterns: tuple[Pattern, ...]
    words: Vocabulary
    kinds: Mapping[str, str]
    doubt: re.Pattern[str]
    denial: re.Pattern[str]
    before: frozenset[str]
    unsure: frozenset[str]
    others: frozenset[str]
    whole: frozenset[str]
    parts: frozenset[str]
    adverbs: frozenset[str]
    fields: Mapping[str, tuple[str, bool]]
    by_word: Mapping[str, tuple[int, ...]]
    grammar: Grammar

    def kind(self, page_type: str, slug: str) -> str:
        """Return the kind of a page by its type or else by its folder, or an empty string."""
        folder = slug.partition("/")[0] if "/" in slug else ""
        return self.kinds.get(page_type.casefold()) or self.kinds.get(folder) or ""


class Grammar(msgspec.Struct, frozen=True):
    """The regular expressions of the elements of patterns."""

    roles: frozenset[str]
    adverbs: str
    determiners: str
    slots: Mapping[str, str]


def build(document: Mapping[str, Any]) -> PatternTable:
    """Build the table from a document such as `data/relations.toml`; raises an error if it is invalid."""
    lists = document["words"]
    grammar = Grammar(
        roles=words(lists["roles"]),
        adverbs=r"(?P<adverbs>(?: [a-z]+){0,2}?)",
        determiners=(
            rf"(?:(?:{_any(lists['determiners'])}) "
            rf"(?:(?!(?:{_any(lists['glue'].replace(' ', ','))})\b)[\w-]+ ){{0,2}}?)?"
        ),
        slots={
            "role": r"(?P<role>[\w&/’'-]+(?: [\w&/’',-]+){0,7}?)",
            "clause": r"(?P<clause>.{3,400})",
            "date": DATE,
            "words": r"(?:[\w'’-]+ ){1,5}?",
            "amount": r"(?:[\w$€£.,%-]+ ){0,5}?",
            "aside": r"(?:(?:,| –| —| -|:) | \()",
            "open": r"\(",
            "someone": rf"(?:we|they|i|the team|{MENTION})",
        },
    )
    relations: dict[str, Relation] = {}
    patterns: list[Pattern] = []
    for name, row in document["relations"].items():
        relations[name] = _relation(name, row)
        past = row.get("past")
        if past:
            relations[past] = _relation(
                past,
                {
                    **row,
                    "ask": row.get("ask_past", []),
                    "fields": "",
                    "inverse_fields": "",
                    "past": "",
                    "otherwise": "",
                },
            )
        for line in row.get("patterns", ()):
            target = past if line.get("past") and past else name
            patterns.append(_pattern(target, line, grammar))
    return PatternTable(
        relations=relations,
        patterns=tuple(patterns),
        words=Vocabulary(
            words(lists["not_names"]) | words(lists["adverbs"]),
            words(lists["common"]),
            grammar.roles,
            frozenset({word for pattern in patterns for word in pattern.openers}),
        ),
        kinds={word: kind for kind, line in document["kinds"].items() for word in line.split()},
        doubt=re.compile(rf"\b(?:{_any(lists['doubt'])})\b"),
        denial=re.compile(rf"\b(?:{_any(lists['denial'])})\b"),
        adverbs=words(lists["adverbs"]),
        before=words(lists["before"]),
        unsure=frozenset(_phrases(lists["unsure"])),
        **{name: words(lists[name]) for name in ("others", "whole", "parts")},
        fields=_fields(relations),
        by_word=_index(patterns),
        grammar=grammar,
    )


def _relation(name: str, row: Mapping[str, Any]) -> Relation:
    return Relation(
        name=name,
        subjects=words(row.get("from", "")),
        objects=words(row.get("to", "")),
        past=row.get("past", ""),
        otherwise=row.get("otherwise", ""),
        implies=tuple(row.get("implies", "").split()),
        fields=frozenset(_phrases(row.get("fields", ""))),
        inverse_fields=frozenset(_phrases(row.get("inverse_fields", ""))),
        ask=tuple(row.get("ask", ())),
        symmetric=bool(row.get("symmetric")),
    )


def _pattern(relation: str, line: Mapping[str, Any], grammar: Grammar) -> Pattern:
    text = line["text"]
    a, b = line.get("means", ("Ada Byron", "Bell Labs"))
    source = regex_of(text, grammar)
    anywhere = bool(line.get("anywhere")) or not re.match(r"\{[AB]\} ", text)
    return Pattern(
        line["id"],
        relation,
        source,
        _anchors(text, grammar.roles),
        _openers(text),
        line["say"],
        (a, b),
        text,
        anywhere,
    )


def regex_of(text: str, grammar: Grammar) -> str:
    """Return the regular expression of a pattern."""
    pieces = [rf"(?<![\w{chr(NAME_0)}-{chr(NAME_END)}])"]
    after_optional = False
    for token in _TOKEN.finditer(text):
        slot, choice, optional, literal, _space = token.groups()
        if slot:
            pieces.append(_slot(slot, grammar, token.start() == 0 and text[token.end() :][:1] == " "))
        elif choice is not None:
            options = "|".join(
                _option(option.strip() if optional else option) for option in choice.lower().split("|")
            )
            pieces.append(f"(?:(?:{options}) )?" if optional else f"(?:{options})")
        elif literal:
            pieces.append(_literal(literal.lower()))
        elif not after_optional:
            pieces.append(" ")
        after_optional = bool(optional) or slot == "aside"
    return "".join(pieces)


def _option(option: str) -> str:
    return _literal(option).replace(r"\{date\}", DATE).replace(r"\{words\}", r"[\w'’-]+(?: [\w'’-]+){0,3}?")


def _literal(text: str) -> str:
    return re.escape(text).replace("'s", "’s?").replace("'", "’").replace("’", "['’]")


def _slot(slot: str, grammar: Grammar, leads: bool) -> str:
    match slot:
        case "A" | "B" if leads:
            return rf"(?P<{slot}>{_LIST}){_ASIDE}{grammar.adverbs}"
        case "P" if leads:
            return rf"(?P<{slot}>{_LIST}){grammar.adverbs}"
        case "A" | "B":
            return rf"{grammar.determiners}(?P<{slot}>{_LIST})"
        case _:
            return grammar.slots[slot]


def _anchors(text: str, roles: frozenset[str]) -> frozenset[str]:
    """Return the words of the most selective element, one of which occurs in every matching sentence."""
    if "{role}" in text:
        return roles | {role + "s" for role in roles}
    best: frozenset[str] = frozenset()
    for token in _TOKEN.finditer(text.lower()):
        slot, choice, optional, literal, _space = token.groups()
        if optional or slot:
            continue
        options = choice.split("|") if choice is not None else [literal or ""]
        words_of_options = [
            [word for word in _WORDS.findall(option) if word not in _VAGUE] for option in options
        ]
        if all(words_of_options):
            words = frozenset(max(option, key=len) for option in words_of_options)
            if not best or min(map(len, words)) > min(map(len, best)):
                best = words
    return best


def _openers(text: str) -> frozenset[str]:
    """Return the verbs that follow a leading `{A}`, with which a list item may begin instead."""
    match = re.match(r"\{[A]\} (?:\(([^()]*)\)(?!\?)|([a-z]+))", text)
    if match is None:
        return frozenset()
    options = (match[1] or match[2]).split("|")
    return frozenset(option.split()[0] for option in options) - _VAGUE - {"will", "can"}


def _index(patterns: Sequence[Pattern]) -> dict[str, tuple[int, ...]]:
    index: dict[str, list[int]] = {}
    for number, pattern in enumerate(patterns):
        if not pattern.anchors:
            raise ValueError(f"{pattern.id} must have an anchor word, or it would be tried on every sentence")
        for word in pattern.anchors:
            index.setdefault(word, []).append(number)
    return {word: tuple(numbers) for word, numbers in index.items()}


def _fields(relations: Mapping[str, Relation]) -> dict[str, tuple[str, bool]]:
    fields: dict[str, tuple[str, bool]] = {}
    for relation in relations.values():
        fields |= dict.fromkeys(relation.fields, (relation.name, False))
        fields |= dict.fromkeys(relation.inverse_fields, (relation.name, True))
    return fields


def _any(line: str) -> str:
    return "|".join(sorted((re.escape(phrase) for phrase in _phrases(line)), key=len, reverse=True))


def _phrases(line: str) -> list[str]:
    return [" ".join(phrase.split()) for phrase in line.split(",") if phrase.strip()]
