"""Parsing of a model's replies: JSON of limited size, whose parts are all checked before use.

A model's reply is as untrusted as the text that the model has read. Therefore a quotation must occur in the
source, a statement must be supported by the source, and page names are derived from subjects by code.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TypeVar

import msgspec

from sixfold import errors
from sixfold.core.memory import limits
from sixfold.core.memory.indexing import tokens

MAX_FACTS = 40
STATEMENT_CHARS, SUBJECT_CHARS, QUOTE_CHARS = 500, 100, 1_000
# Maximum number of characters of a reply that are read.
_MAX_REPLY = 200_000
_MAX_DROPPED_CHARS = 200
# The fraction of a statement's words that its source must contain.
_SHARE = 0.5
# The number of characters before a quotation that may name its subject.
_BEFORE = 300
_MIN_QUOTE = 4
_SENTENCE_END = re.compile(r"[.!?؟](?=\s)|[。！？]|\n")
_SENTENCE_CHARS = 400
_THINKING = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_SPACE = re.compile(r"\s+")
_ALIKE = str.maketrans({**dict.fromkeys("“”„«»″", '"'), **dict.fromkeys("‘’‚`´", "'"), "\u00a0": " "})
# Characters that Markdown would interpret as a link, code, a comment or an emphasis.
_MARKUP = re.compile(r"\[\[|\]\]|%%|~~~|::|[`*<>\\]")
T = TypeVar("T")


class UnreadableReply(Exception):
    """The reply is not JSON of the requested schema."""


class _Item(msgspec.Struct):
    subject: str
    statement: str
    quote: str
    date: str = ""


class Comparison(msgspec.Struct):
    """The relation of a new fact to known facts: those that it repeats, and those that it contradicts."""

    fact: int
    same: list[int] = []
    contradicts: list[int] = []


class CitedSentence(msgspec.Struct):
    """A sentence of an answer, and the numbers of the pages that support it."""

    text: str
    sources: list[int] = []


class _Facts(msgspec.Struct):
    facts: list[msgspec.Raw]


class _Comparisons(msgspec.Struct):
    facts: list[msgspec.Raw]


class _Sentences(msgspec.Struct):
    sentences: list[msgspec.Raw]


class FoundFact(msgspec.Struct, frozen=True):
    """A fact of a source: its date, and the supporting sentence of the source."""

    subject: str
    statement: str
    quote: str
    date: str


class DroppedFact(msgspec.Struct, frozen=True):
    """A part of a reply that is not used, and the reason."""

    statement: str
    reason: str


def read_facts(reply: str, source: str, date: str) -> tuple[tuple[FoundFact, ...], tuple[DroppedFact, ...]]:
    """Return the supported and the dropped facts of a reply; raises `UnreadableReply`.

    `date` is the date of the source, which is used for facts without a valid date.
    """
    rows = _decoded(reply, _Facts).facts
    new_facts: list[FoundFact] = []
    dropped: list[DroppedFact] = []
    vocabulary = tokens.terms(source).keys()
    plain = _Plain(source)
    for row in rows[:MAX_FACTS]:
        item = _item(row, _Item)
        if item is None:
            dropped.append(DroppedFact(_brief(bytes(row).decode("utf-8", "replace")), "not a fact"))
            continue
        fact = _fact(item, plain, vocabulary, date)
        if isinstance(fact, FoundFact):
            new_facts.append(fact)
        else:
            dropped.append(DroppedFact(_brief(item.statement), fact))
    if len(rows) > MAX_FACTS:
        dropped.append(DroppedFact("", f"{len(rows) - MAX_FACTS} facts beyond {MAX_FACTS} of one part"))
    return tuple(new_facts), tuple(dropped)


def read_comparisons(reply: str, facts: int) -> tuple[Comparison, ...]:
    """Return the comparisons whose numbers exist; raises `UnreadableReply`."""
    rows = (_item(row, Comparison) for row in _decoded(reply, _Comparisons).facts[:MAX_FACTS])
    return tuple(row for row in rows if row is not None and 1 <= row.fact <= facts)


def read_sentences(
    reply: str, excerpts: Sequence[str]
) -> tuple[tuple[CitedSentence, ...], tuple[DroppedFact, ...]]:
    """Return the sentences of an answer that the cited excerpts support, and the dropped ones.

    Raises `UnreadableReply`.
    """
    sentences: list[CitedSentence] = []
    dropped: list[DroppedFact] = []
    terms = [tokens.terms(excerpt).keys() for excerpt in excerpts]
    for row in _decoded(reply, _Sentences).sentences[:MAX_FACTS]:
        sentence = _item(row, CitedSentence)
        if sentence is None or not sentence.text.strip():
            continue
        text = line(sentence.text, STATEMENT_CHARS)
        cited = tuple(dict.fromkeys(number for number in sentence.sources if 1 <= number <= len(excerpts)))
        cited_terms = {word for number in cited for word in terms[number - 1]}
        if not cited:
            dropped.append(DroppedFact(_brief(text), "cites no page of the context"))
        elif not _is_supported(text, cited_terms, cited_terms):
            dropped.append(DroppedFact(_brief(text), "the cited pages do not say it"))
        else:
            sentences.append(CitedSentence(text, list(cited)))
    return tuple(sentences), tuple(dropped)


def line(text: str, max_chars: int) -> str:
    """Return a text of a model or source as one line without Markdown syntax."""
    return limits.loose_line(_SPACE.sub(" ", _MARKUP.sub(" ", text[: max_chars * 2])), max_chars).strip()


def _decoded(reply: str, kind: type[T]) -> T:
    """Parse the JSON object in a reply; a truncated object ends after its last complete item."""
    text = _THINKING.sub("", reply[:_MAX_REPLY])
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise UnreadableReply
    document = text[start : end + 1]
    for candidate in (document, f"{document}]}}"):
        try:
            return msgspec.json.decode(candidate.encode("utf-8", "replace"), type=kind)
        except (msgspec.DecodeError, RecursionError):
            continue
    raise UnreadableReply


def _item(row: msgspec.Raw, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(row, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return None


def _fact(item: _Item, source: _Plain, vocabulary: Collection[str], date: str) -> FoundFact | str:
    """Return the fact of an item, or the reason why it is dropped."""
    subject, statement = line(item.subject, SUBJECT_CHARS), line(item.statement, STATEMENT_CHARS)
    if not subject or not statement:
        return "without a subject or a statement"
    at = source.find(item.quote)
    if at is None:
        return "its quotation is not in the source"
    sentence = source.sentence(*at)
    nearby_terms = tokens.terms(source.text[max(0, at[0] - _BEFORE) : at[0]] + " " + sentence).keys()
    own_date = _date(item.date) or date
    if not _is_supported(statement, {*vocabulary, *tokens.terms(f"{date} {own_date}")}, nearby_terms):
        return "the source does not say it"
    return FoundFact(subject, statement, line(sentence, _SENTENCE_CHARS), own_date)


def _is_supported(statement: str, source: Collection[str], nearby_terms: Collection[str]) -> bool:
    """Return whether a source contains most words and all numbers of a statement.

    At least one word must be in `nearby_terms`, the words around the quotation.
    """
    words = tokens.terms(statement).keys()
    if not words or any(word.isdigit() and word not in source for word in words):
        return False
    return sum(word in source for word in words) >= _SHARE * len(words) and any(
        word in nearby_terms for word in words
    )


def _date(text: str) -> str:
    """Return a year, month or day, or an empty string for any other value."""
    try:
        return limits.date(text[:10])
    except errors.BadRequest:
        return ""


def _brief(text: str) -> str:
    return line(text, _MAX_DROPPED_CHARS)


class _Plain:
    """A source in which quotations are found despite differences in white space, case and quotation marks."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._offsets: list[int] = []
        chars: list[str] = []
        for offset, char in enumerate(text.translate(_ALIKE)):
            if char.isspace():
                if not chars or chars[-1] == " ":
                    continue
                char = " "
            lower = char.lower()
            chars.append(lower if len(lower) == 1 else char)
            self._offsets.append(offset)
        self._plain = "".join(chars)

    def find(self, quote: str) -> tuple[int, int] | None:
        """Return the start and end of a quotation in the source, or None."""
        if len(quote) > QUOTE_CHARS:
            return None
        plain_quote = _Plain(quote)._plain.strip(" \"'.…") if quote else ""
        if len(plain_quote) < _MIN_QUOTE or not tokens.terms(plain_quote):
            return None
        at = self._plain.find(plain_quote)
        if at < 0:
            return None
        return self._offsets[at], self._offsets[at + len(plain_quote) - 1] + 1

    def sentence(self, start: int, end: int) -> str:
        """Return the sentences around a range, shortened to the part nearest to it if they are long."""
        earliest, latest = max(0, start - _SENTENCE_CHARS), min(len(self.text), end + _SENTENCE_CHARS)
        first = max(
            (match.end() for match in _SENTENCE_END.finditer(self.text, earliest, start)), default=earliest
        )
        after = _SENTENCE_END.search(self.text, max(start, end - 1), latest)
        last = after.end() if after is not None else latest
        if last - first > _SENTENCE_CHARS:
            first, last = start, min(end, start + _SENTENCE_CHARS)
        return self.text[first:last].strip()
