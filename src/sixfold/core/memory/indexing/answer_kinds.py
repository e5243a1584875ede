"""Kinds of answers that a question asks for and a page contains: times, numbers, or names.

*When did they leave?* asks for a time, so a page with a time is the more likely answer among those with the
same words. The answers of each kind in a page are counted when it is written; the kind that a question asks
for is determined by its first words.
"""

from __future__ import annotations

import re
from typing import Literal

from sixfold.core.memory.indexing.weights import ENOUGH_ANSWERS

AnswerKind = Literal["time", "number", "name"]
# The order of the counts in an index entry.
KINDS: tuple[AnswerKind, ...] = ("time", "number", "name")
# Maximum characters of a body that are read.
_MAX_READ = 2_000
_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|last|next|ago|weeks?|weekend|months?|years?|days?|since|recently"
    r"|just|morning|night|(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|may|june"
    r"|july|august|september|october|november|december|(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
_COUNT = re.compile(
    r"\b(?:\d+|one|two|three|four|five|six|seven|eight|nine|ten|once|twice|couple|few|several|dozen)\b",
    re.IGNORECASE,
)
# A capital letter inside a sentence; in languages that capitalize nouns, all pages have more of them.
_INNER_CAPITAL = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")
_READERS = (_TIME, _COUNT, _INNER_CAPITAL)
_QUESTION = re.compile(
    r"\W*(?:(?P<time>(?:since )?when|(?:(?:in|on) )?(?:what|which) (?:day|date|month|year)"
    r"|wann|quand|cu[aá]ndo|quando)"
    r"|(?P<number>how (?:many|much|long|often|old|far)|wie ?viele?|wie (?:lange|oft|alt)|combien"
    r"|cu[aá]nt[oa]s?|quant[eio])"
    r"|(?P<name>who|whom|whose|where|wer|wen|wem|wo|qui|o[uù]|qui[eé]n|d[oó]nde|chi|dove))\b",
    re.IGNORECASE,
)


def expected_kind(question: str) -> AnswerKind | None:
    """Return the kind of answer that a question asks for, or None."""
    match = _QUESTION.match(question)
    return None if match is None else next(kind for kind in KINDS if match[kind] is not None)


def count_answers(body: str) -> tuple[int, int, int]:
    """Count the times, the numbers and the names in a body, each up to `ENOUGH_ANSWERS`."""
    text = body[:_MAX_READ]
    times, numbers, names = (_counted(reader, text) for reader in _READERS)
    return times, numbers, names


def _counted(reader: re.Pattern[str], text: str) -> int:
    count = 0
    for _ in reader.finditer(text):
        count += 1
        if count == ENOUGH_ANSWERS:
            break
    return count
