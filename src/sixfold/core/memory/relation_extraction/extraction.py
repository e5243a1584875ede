"""Extraction of relations from the plain sentences of a page, before names are resolved.

A statement identifies its subject and object by keys, which `service` resolves to pages. The page itself is
the subject of a pronoun, of a list item that begins with its verb, and of a `Title: value` line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from sixfold.core.memory import frontmatter, limits, slugs
from sixfold.core.memory.indexing import english
from sixfold.core.memory.models import MemoryPage
from sixfold.core.memory.relation_extraction import dates, entities, relations, sentences, tables
from sixfold.core.memory.relation_extraction.entities import EntityMention, MaskedText, words
from sixfold.core.memory.relation_extraction.patterns import PatternTable
from sixfold.core.memory.relation_extraction.relations import Slots
from sixfold.core.memory.relation_extraction.sentences import Sentence

# Maximum number per page.
MAX_STATEMENTS = 500
# Maximum number of identifiers that are searched in every sentence.
MAX_KNOWN = 200
_MAX_EFFORT = (
    # Maximum of characters times patterns; a page of facts needs 50,000.
    5_000_000
)
_PRONOUN = re.compile(
    r"(?:(?:later|then|today|now|since then|also|soon after),? )?"
    rf"({'|'.join(english.SUBJECTS)}|the (?:company|project|team|service))(?= |['’]s )"
)
_ELLIPSIS = re.compile(r"((?:,? (?:and|but)|[,;]|, then) (?:then |also |now |later |has )?)([a-z]+)(?= )")
_LATER = re.compile(
    r",? ?\b(before|after|when|where|while|because|since|until|and|but|then),? "
    rf"(?:{'|'.join(english.PERSONS)}) "
)
_THINGS = frozenset({"project", "organisation", "document", "decision", "meeting"})
_OBJECT = re.compile(r"\b([a-z]+) (?:it|this (?:project|service|company|document|team|system))(?=[ .,;]|$)")
_PASSIVE = re.compile(r"[a-z]+(?:ed|en|ilt|un|ade) (?:(?:on|in) [\uf000-\uf7ff] )?by [\ue000-\uefff]")
_RELATIVE = re.compile(r"\b(?:who|which|whose|whom|that)\b")
_COPULAS = frozenset({"is", "was", "are", "were"})
_PERSONS = frozenset(english.PERSONS)
_SEPARATOR = re.compile(r"\s*(?:[,;|]|\s[–—&]\s|\band\b)\s*")
_ASIDE = re.compile(r"\s*(?:\([^()]*\)|\s[-–—]\s.*|:\s.*)$")
_EMPTY = words("none tbd tba n/a na unknown nobody nothing - – ? various all everyone me self open")
_MAX_ALIASES = 50
# Maximum length of a name without capitals.
_MAX_VALUE_WORDS = 3
_FALSE_ENDS = words(
    "labs lab inc group systems university college team project bank institute press hall street"
)


class ExtractedRelation(NamedTuple):
    """A relation between two names; `near` is a fuller spelling on the same page, or empty.

    `subject` and `object` are keys of `entities.key`; a key that begins with `/` is a slug. If the object is
    not a name, `object` is empty and `object_text` contains its words. `start` is the position of the
    sentence in the body.
    """

    relation: str
    pattern: str
    subject: str
    near_subject: str
    object: str
    near_object: str
    object_text: str
    sentence: str
    start: int
    moment: str


class _SentenceReader(msgspec.Struct):
    """The state that is carried from sentence to sentence."""

    page: MemoryPage
    table: PatternTable
    kind: str
    base: str
    known: Collection[str]
    own: EntityMention
    block: int = -1
    last: EntityMention | None = None
    names: dict[str, None] | None = None
    effort: int = 0


def read(page: MemoryPage, table: PatternTable, known: Collection[str] = ()) -> list[ExtractedRelation]:
    """Return all statements of a page in order; `known` are identifiers that name pages."""
    base = dates.of_slug(page.slug)
    own = EntityMention(page.title, entities.slug_key(page.slug), sure=True)
    reader = _SentenceReader(page, table, table.kind(page.type, page.slug), base, known, own, names={})
    statements: list[tuple[Sentence, Slots]] = []
    for sentence in sentences.sentences(page.body):
        statements += [(sentence, slots) for slots in _of_sentence(reader, sentence)]
        if len(statements) >= MAX_STATEMENTS or reader.effort > _MAX_EFFORT:
            break
    statements += _of_tables(reader)
    nearer = _nearer(reader)
    return [_statement(sentence, slots, nearer) for sentence, slots in statements[:MAX_STATEMENTS]]


def names_of(page: MemoryPage, aliases: Collection[str], table: PatternTable) -> dict[str, int]:
    """Return the normalized names of a page, each with its rank; 0 is the strongest.

    The ranks are 0 slug, 1 title, 2 alias, 3 last segment, and 4 a person's first or last name.
    """
    title = entities.key(page.title)
    segment = page.slug.rpartition("/")[2]
    ranks = {entities.slug_key(page.slug): 0}
    for name, rank in (
        (title, 1),
        *((entities.key(alias), 2) for alias in aliases),
        # The aliases as they are spelled in links.
        *((entities.slug_key(slugs.loosely(alias) or alias), 2) for alias in aliases),
        (entities.key(segment), 3),
    ):
        if name and not (name in table.words.common | table.words.not_names and rank == 3):
            ranks.setdefault(name, rank)
    words = title.split()
    if len(words) > 1 and table.kind(page.type, page.slug) == "person":
        ranks.setdefault(words[0], 4)
        ranks.setdefault(words[-1], 4)
    return ranks


def aliases(page: MemoryPage) -> tuple[str, ...]:
    """Return the aliases of a page from `aliases` in its front matter or `alias::` at its top."""
    texts: list[str] = []
    for text, parse in ((page.head, frontmatter.read), (page.body[:500], frontmatter.properties)):
        fields = parse(text) if "alias" in text.lower() else None
        texts += (fields.aliases if fields is not None else None) or ()
    names = (limits.loose_line(alias.strip(" \t\"'[]"), limits.TITLE_CHARS) for alias in texts)
    return tuple(filter(None, names))[:_MAX_ALIASES]


def _of_tables(reader: _SentenceReader) -> Iterator[tuple[Sentence, Slots]]:
    """Yield the statements of tables, in which each row is about its first cell."""
    for cell in tables.cells(reader.page.body):
        predicate = reader.table.fields.get(cell.title)
        if predicate is None:
            continue
        first = next(_values(reader, cell.first, entities.mask(cell.first, reader.table.words)), None)
        if first is None or not first.key:
            continue
        sentence = Sentence(cell.line, cell.start, "", opens=True, block=-1)
        row = replace(reader, own=first, kind="")
        value = Sentence(cell.text, cell.start, cell.title, opens=True, block=-1)
        yield from ((sentence, slots) for slots in _titled(row, value, *predicate))


def _of_sentence(reader: _SentenceReader, sentence: Sentence) -> Iterator[Slots]:
    table = reader.table
    if sentence.block != reader.block:
        reader.block, reader.last = sentence.block, None
    predicate = table.fields.get(sentence.field.lower()) if sentence.field else None
    if predicate is not None and sentence.opens:
        yield from _titled(reader, sentence, *predicate)
    if sentence.field.lower() in table.unsure:
        return
    if not reader.known and entities.is_plain(sentence.text, table.words):
        return
    pattern_ids = relations.telling(sentence.text, table)
    masked = entities.mask(sentence.text, table.words, reader.known, reader.base if pattern_ids else None)
    if not masked.mentions:
        return
    statements: list[Slots] = []
    reader.effort += len(sentence.text) * len(pattern_ids)
    if pattern_ids:
        _stand_in(reader, sentence, masked)
        statements = relations.statements(masked, table, pattern_ids)
        if _pronoun_behind(masked, statements, table):
            statements = relations.statements(masked, table, pattern_ids)
        yield from statements
    _remember(reader, masked, statements)


def _stand_in(reader: _SentenceReader, sentence: Sentence, masked: MaskedText) -> None:
    """Insert the page, or the last mentioned person, for a pronoun or a missing subject."""
    table, text = reader.table, masked.text
    pronoun = _PRONOUN.match(text)
    if pronoun is not None:
        person = _antecedent(reader, pronoun[1])
        if person is not None:
            text = masked.text = text[: pronoun.start(1)] + masked.add(person) + text[pronoun.end(1) :]
    text = masked.text = _with_object(reader, masked)
    subject = _subject(text)
    if subject and _ELLIPSIS.search(text):
        masked.text = _ELLIPSIS.sub(lambda match: _with_subject(match, subject, table), text)
        return
    first = text.split(" ", 1)[0]
    if not (sentence.opens and reader.kind):
        return
    if _PASSIVE.match(text):
        masked.text = masked.add(reader.own) + " was " + text
    elif first in table.words.verbs:
        masked.text = masked.add(reader.own) + " " + text


def _pronoun_behind(masked: MaskedText, statements: Sequence[Slots], table: PatternTable) -> bool:
    """Replace a later pronoun with the sentence's subject if the reference is unambiguous.

    Return whether it was replaced.
    """
    subject, later = _subject(masked.text), _LATER.search(masked.text)
    if not subject or later is None:
        return False
    things = {
        slots.object.key for slots in statements if "person" not in table.relations[slots.relation].objects
    }
    mentioned = {
        masked.mention(name).key for name in masked.text[: later.start()] if entities.is_mention(name)
    }
    if mentioned - things - {masked.mention(subject).key}:
        return False
    masked.text = _LATER.sub(lambda match: f"; {match[1]} {subject} ", masked.text, count=1)
    return True


def _with_object(reader: _SentenceReader, masked: MaskedText) -> str:
    """Return the text with "it" after a verb replaced by the page, if the page is about a thing."""
    if reader.kind not in _THINGS or (" it" not in masked.text and " this " not in masked.text):
        return masked.text

    def named(match: re.Match[str]) -> str:
        return f"{match[1]} {masked.add(reader.own)}" if match[1] in reader.table.words.verbs else match[0]

    return _OBJECT.sub(named, masked.text, count=1)


def _subject(text: str) -> str:
    """Return the character of the only name that begins a sentence, if later verbs refer to it."""
    if not text or not "\ue000" <= text[0] <= "\uefff" or _RELATIVE.search(text):
        return ""
    return text[0] if text[1:2] == " " and not text.startswith(("and ", "& "), 2) else ""


def _with_subject(match: re.Match[str], subject: str, table: PatternTable) -> str:
    return f"; {subject} {match[2]}" if match[2] in table.words.verbs | _COPULAS else match[0]


def _antecedent(reader: _SentenceReader, pronoun: str) -> EntityMention | None:
    if pronoun == "they" and reader.kind == "organisation":
        return reader.own
    if pronoun in _PERSONS or pronoun == "it":
        if reader.last is not None:
            return reader.last
        if not reader.names:
            return reader.own if (reader.kind == "person") == (pronoun in _PERSONS) else None
        if reader.kind == "person" and pronoun in _PERSONS and _alone(reader):
            return reader.own
        return None
    return reader.own if reader.kind in {"organisation", "project"} else None


def _alone(reader: _SentenceReader) -> bool:
    """Return whether the block so far mentions only the name of the page."""
    words = set(entities.key(reader.page.title).split())
    return reader.last is None and all(set(name.split()) <= words for name in reader.names or ())


def _remember(reader: _SentenceReader, masked: MaskedText, statements: list[Slots]) -> None:
    """Set the antecedent of a pronoun in the next sentence: the only name in this one, or its subject."""
    assert reader.names is not None  # noqa: S101 - set by `read`
    own_words = set(entities.key(reader.page.title).split())
    mentions = [mention for mention in masked.mentions if mention.key]
    for mention in mentions:
        reader.names.setdefault(mention.key)
    first = masked.text[:1]
    opens = "\ue000" <= first <= "\uefff"
    subject = masked.mention(first) if opens else None
    other_keys = {
        slots.object.key
        for slots in statements
        if "person" not in reader.table.relations[slots.relation].objects
    }
    mention_keys = {mention.key for mention in mentions} - other_keys
    if subject is None:
        reader.last = None
    elif subject is reader.own or set(subject.key.split()) <= own_words:
        # On a person's page, the person remains the subject.
        reader.last = reader.own
    else:
        reader.last = subject if mention_keys <= {subject.key} else None


def _titled(reader: _SentenceReader, sentence: Sentence, relation: str, inverse: bool) -> Iterator[Slots]:
    """Yield the statements about the page in a `Title: value` line, or in an item under a heading."""
    relation_row = reader.table.relations[relation]
    rows = (relation_row, reader.table.relations.get(relation_row.otherwise, relation_row))
    if reader.kind and not any(_fits(reader.kind, row.objects if inverse else row.subjects) for row in rows):
        return
    masked = entities.mask(sentence.text.rstrip(". "), reader.table.words, reader.known, reader.base)
    moment = masked.moments[0] if masked.moments else ""
    text = sentence.text.rstrip(". ")
    for value in _values(reader, text, masked):
        ends = (value, reader.own) if inverse else (reader.own, value)
        if value.key and value.key != reader.own.key:
            yield Slots(relation, f"{relation}.field", *ends, moment)


def _fits(kind: str, kinds: frozenset[str]) -> bool:
    return not kinds or kind in kinds


def _values(reader: _SentenceReader, text: str, masked: MaskedText) -> Iterator[EntityMention]:
    """Yield the names in a value: the marked names, or else those between commas, without parentheses."""
    if any(mention.sure for mention in masked.mentions):
        yield from (mention for mention in masked.mentions if mention.sure)
        return
    words = reader.table.words
    for part in _SEPARATOR.split(text)[:30]:
        bare = _ASIDE.sub("", part).strip(" *_`.@")
        lower = bare.lower()
        if not bare or bare[0].isdigit() or lower in _EMPTY | words.common | words.not_names:
            continue
        masked_value = entities.mask(bare, words)
        if masked_value.text and entities.is_mention(masked_value.text[0]):
            yield masked_value.mention(masked_value.text[0])
        elif len(bare.split()) <= _MAX_VALUE_WORDS:
            yield EntityMention(bare, entities.key(bare))


def _nearer(reader: _SentenceReader) -> dict[str, str]:
    """Return, for each single word, the only fuller name on the page that begins with that word."""
    fuller: dict[str, set[str]] = {}
    title_key = entities.key(reader.page.title)
    for name in (*(reader.names or ()), title_key if reader.kind == "person" else ""):
        words = name.split()
        if 2 <= len(words) <= 3 and words[-1] not in _FALSE_ENDS and not name.startswith("/"):
            fuller.setdefault(words[0], set()).add(name)
            fuller.setdefault(words[-1], set()).add(name)
    return {word: names.pop() for word, names in fuller.items() if len(names) == 1}


def _statement(sentence: Sentence, slots: Slots, nearer: dict[str, str]) -> ExtractedRelation:
    return ExtractedRelation(
        relation=slots.relation,
        pattern=slots.pattern,
        subject=slots.subject.key,
        near_subject=nearer.get(slots.subject.key, ""),
        object=slots.object.key,
        near_object=nearer.get(slots.object.key, ""),
        object_text="" if slots.object.key else slots.object.text,
        sentence=" ".join(sentence.text.split()),
        start=sentence.start,
        moment=slots.moment,
    )
