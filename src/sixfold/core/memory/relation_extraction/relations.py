"""Matching of the patterns of the table against one sentence.

Only patterns whose anchor word occurs in the sentence are tried, each with one bounded regular expression, so
the time is linear in the length of the text. The context of a match may invalidate it: doubt, denial, a
question, "the brother of".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from sixfold.core.memory.relation_extraction.entities import DATE_0, EntityMention, MaskedText, words
from sixfold.core.memory.relation_extraction.patterns import DATE, MENTION, Pattern, PatternTable

_MENTION = re.compile(MENTION)
_DATE = re.compile(DATE)
_WORDS = re.compile(r"[a-z]+")
_CLAUSE = re.compile(r"[;:—]|, (?:but|and|while|so|though|although) ")
_GOES_ON = re.compile(
    rf"(?:$|[.,;:!?)—–-]|['’]|\s*(?:$|[(—–-]|{DATE}|(?:in|on|at|to|for|with|about|since|from|last|this|yesterday|today|as|during"
    r"|after|before|where|who|which|over|near|by|of|into|because|when|while|until|through|here|there|together|again"
    r"|once|twice|for|and|but|or|via|under|within|without|instead|too|daily|every|the|a|an|early|late|online)\b))"
)
_NEXT = re.compile(r" ([\w-]+)")
_GENITIVE = re.compile(r"['’](?:s\b|(?=\s))")
_OVER = re.compile(r"\s*(?:,? but )?(?:any ?more|no (?:more|longer)|again$)")
_HEDGED = re.compile(r"[,(] ?(?:i|we) (?:think|guess|believe|suppose|assume|gather|hear|heard)\b[^,;]{0,20}$")
_BEFORE_SUBJECTS = words(
    "and but while that because both when where as after before since then yesterday today so said"
    " says the later meanwhile also engineers founders"
)
_OF_PLACE = frozenset(
    {"at", "in", "on", "for"}
    # "works at Acme and Bob founded Globex" has two clauses.
)
_RELATIVE = re.compile(r",? (?:who|which|that) ")
_OF_ROLE = re.compile(r" (?:of|for|to|in|on) ")


class Slots(NamedTuple):
    """A relation between two mentions that a sentence states."""

    relation: str
    pattern: str
    subject: EntityMention
    object: EntityMention
    moment: str


def telling(sentence: str, table: PatternTable) -> dict[int, None]:
    """Return the numbers of the patterns whose anchor word occurs in a sentence."""
    indexes: dict[int, None] = {}
    for word in _WORDS.findall(sentence.lower()):
        numbers = table.by_word.get(word)
        if numbers is not None:
            indexes |= dict.fromkeys(numbers)
    return indexes


def statements(
    masked: MaskedText, table: PatternTable, pattern_numbers: Iterable[int] | None = None
) -> list[Slots]:
    """Return the relations of a masked sentence, each pair of names once per relation.

    `pattern_numbers` are the numbers of the candidate patterns, as returned by `telling`.
    """
    text = masked.text
    if text.rstrip("\"'”’)*_ ").endswith("?"):
        return []
    names = len(_MENTION.findall(text))
    unique: dict[tuple[str, str, str], Slots] = {}
    for number in telling(text, table) if pattern_numbers is None else pattern_numbers:
        pattern = table.patterns[number]
        if names < pattern.names:
            continue
        for match in _matches(pattern, text):
            if _is_invalid(text, match, pattern, table):
                continue
            for slots in _pairs(masked, match, pattern):
                unique.setdefault((slots.relation, slots.subject.key, slots.object.key), slots)
    return [slots for slots in unique.values() if not _is_implied(slots, unique, table)]


def _matches(pattern: Pattern, text: str) -> Iterator[re.Match[str]]:
    """Yield all matches; the last name of a match may be the first of the next ("A knows B, who knows C")."""
    match = pattern.regex.search(text)
    while match is not None:
        yield match
        ends = [match.start(group) for group in match.re.groupindex if group in "ABP"]
        match = pattern.regex.search(text, max(match.start() + 1, *ends))


def _is_implied(slots: Slots, unique: Mapping[tuple[str, str, str], Slots], table: PatternTable) -> bool:
    """Return whether a more specific relation states the same about the same names."""
    return any(
        (name, slots.subject.key, slots.object.key) in unique
        for name, row in table.relations.items()
        if slots.relation in row.implies
    )


def _is_invalid(text: str, match: re.Match[str], pattern: Pattern, table: PatternTable) -> bool:
    before = text[: match.start()]
    cuts = [cut.end() for cut in _CLAUSE.finditer(before)]
    clause = before[cuts[-1] :] if cuts else before
    words = clause.split()
    free = pattern.anywhere or _RELATIVE.match(text, _first_end(match)) is not None
    word = words[-1].strip("(\"'“") if words else ""
    if not free and word in table.before and not (word in _OF_PLACE and " and " in match[0][:8]):
        return True
    if table.doubt.search(clause) or table.denial.search(text):
        return True
    if not _slots_fit(match, table):
        return True
    if _HEDGED.search(text, match.end()) or _belongs(text, match, pattern, table):
        return True
    inside = text[match.start() : match.end()]
    return bool(_GENITIVE.match(text, match.end()) or _OVER.match(text, match.end())) or "?" in inside


def _belongs(text: str, match: re.Match[str], pattern: Pattern, table: PatternTable) -> bool:
    """Return whether the last name is a possessive of the next word, as in "its partner" or "its shares"."""
    following = _NEXT.match(text, match.end())
    word = following[1].lower() if following is not None else ""
    return word in table.others or (pattern.relation in table.whole and word in table.parts)


def _first_end(match: re.Match[str]) -> int:
    return min(match.end(group) for group in match.re.groupindex if group in "ABP")


def _slots_fit(match: re.Match[str], table: PatternTable) -> bool:
    """Return whether the free slots have valid content: adverbs, or an occupation."""
    groups = match.groupdict()
    if not table.adverbs.issuperset((groups.get("adverbs") or "").split()):
        return False
    role = groups.get("role")
    if role is None:
        return True
    words = _OF_ROLE.split(role)[0].replace(",", "").replace("/", " ").split()
    return bool(words) and (
        words[-1] in table.words.roles or words[-1].removesuffix("s") in table.words.roles
    )


def _pairs(masked: MaskedText, match: re.Match[str], pattern: Pattern) -> Iterator[Slots]:
    text = masked.text
    groups = match.groupdict()
    moment = _moment(masked, text, match)
    if "P" in groups:
        pair = _names(masked, match, "P")
        for number, subject in enumerate(pair):
            yield from (
                Slots(pattern.relation, pattern.id, subject, other, moment) for other in pair[number + 1 :]
            )
        return
    subjects = _names(masked, match, "A")
    if "B" in groups:
        objects = _names(masked, match, "B")
    else:
        clause = groups.get("clause") or ""
        objects = [masked.mention(name) for name in _MENTION.findall(clause)][:1] or [
            EntityMention(clause, "")
        ]
    for subject in subjects:
        for other in objects:
            if subject.key != other.key or not subject.key:
                yield Slots(pattern.relation, pattern.id, subject, other, moment)


def _names(masked: MaskedText, match: re.Match[str], group: str) -> list[EntityMention]:
    """Return the names of a list; a name at the edge that is part of the adjacent clause is omitted."""
    text = masked.text
    names = _MENTION.findall(match[group])
    if len(names) > 1 and match.end(group) == match.end() and not _GOES_ON.match(text, match.end()):
        del names[-1]
    if len(names) > 1 and match.start(group) == match.start() and not _begins(text, match.start()):
        del names[:-1]
    return [masked.mention(name) for name in names]


def _begins(text: str, start: int) -> bool:
    """Return whether a list at this position is a subject, and not partly an object."""
    before = text[:start].rstrip()
    if not before or before[-1] in ',;:—–-(.“"' or _DATE.match(before[-1]):
        return True
    return before.rpartition(" ")[2] in _BEFORE_SUBJECTS


def _moment(masked: MaskedText, text: str, match: re.Match[str]) -> str:
    """Return the date of the sentence: the first one after the start of the match, or else the one before."""
    match_of_date = _DATE.search(text, match.start()) or _DATE.search(text)
    return masked.moments[ord(match_of_date[0]) - DATE_0] if match_of_date is not None else ""
