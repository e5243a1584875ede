"""The facts of a page: dated lines in two sections of its body, which are also its timeline.

```
## Facts
- **2026-11-20** | standup — Ann Lee works at Acme.
  > I started at Acme last week.

## Earlier facts
- **2026-01-05** | interview — Ann Lee works at Beta. (until 2026-11-20)
  > Ann: I am at Beta.
```
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from sixfold.core.memory import markdown
from sixfold.core.memory.indexing import tokens

CURRENT, EARLIER = "Facts", "Earlier facts"
_FACT = re.compile(
    r"^- \*\*(?P<date>\d{4}(?:-\d\d(?:-\d\d)?)?)\*\* \| (?:(?P<source>[^\n]*?) — )?(?P<statement>[^\n]+)\n?"
    r"(?:  > (?P<quote>[^\n]*)\n?)?",
    re.MULTILINE,
)
_UNTIL = re.compile(r" \(until [\d-]{4,10}\)$")
_WORD = re.compile(r"\w+")


class PageFact(msgspec.Struct, frozen=True):
    """A fact on a page: its date, the name of its source, and the supporting sentence of the source."""

    date: str
    source: str
    statement: str
    quote: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """The words of the statement, which are equal for equal statements."""
        return tuple(_WORD.findall(tokens.fold(_UNTIL.sub("", self.statement))))

    @property
    def text(self) -> str:
        quote = f"  > {self.quote}\n" if self.quote else ""
        source = f"{self.source} — " if self.source else ""
        return f"- **{self.date}** | {source}{self.statement}\n{quote}"

    def until(self, date: str) -> PageFact:
        """Return the fact with an end date."""
        return PageFact(self.date, self.source, f"{self.statement} (until {date})", self.quote)


class SupersededFact(msgspec.Struct, frozen=True):
    """A fact that a newer fact contradicts, and the date from which the newer fact holds."""

    fact: PageFact
    until: str


class ExtendedBody(msgspec.Struct, frozen=True):
    """A body with new facts, with the facts that were added, and the facts that were superseded."""

    body: str
    added: tuple[PageFact, ...]
    superseded: tuple[SupersededFact, ...]


def facts_of(body: str, section: str = CURRENT) -> tuple[PageFact, ...]:
    """Return the facts of a section in order."""
    return tuple(fact for fact, _, _ in _facts_with_spans(body, section))


def extend(body: str, facts: Sequence[tuple[PageFact, Sequence[PageFact]]]) -> ExtendedBody:
    """Add facts, each with the known facts that it contradicts, unless the page contains them.

    Of two contradicting facts, the one with the older date moves to the section of earlier facts.
    """
    added: list[PageFact] = []
    superseded: list[SupersededFact] = []
    for fact, contradicted in facts:
        keys = {page_fact.key for page_fact in facts_of(body)}
        before = {(page_fact.date, page_fact.key) for page_fact in facts_of(body, EARLIER)}
        if fact.key in keys or (fact.date, fact.key) in before:
            continue
        others = [page_fact for page_fact in contradicted if page_fact.key in keys]
        newer = [page_fact for page_fact in others if page_fact.date > fact.date]
        added.append(fact)
        if newer:
            until = min(page_fact.date for page_fact in newer)
            superseded.append(SupersededFact(fact, until))
            body = _insert(body, EARLIER, fact.until(until))
            continue
        for page_fact in others:
            superseded.append(SupersededFact(page_fact, fact.date))
            body = _insert(_without(body, page_fact), EARLIER, page_fact.until(fact.date))
        body = _insert(body, CURRENT, fact)
    return ExtendedBody(body, tuple(added), tuple(superseded))


def revert(body: str, before: str, after: str) -> str:
    """Return a body without the facts that a change from `before` to `after` added.

    Facts that the change superseded become current again. All other text is kept.
    """
    old = {*facts_of(before), *facts_of(before, EARLIER)}
    for section in (CURRENT, EARLIER):
        for fact in facts_of(after, section):
            if fact not in old:
                body = _without(body, fact, section)
    current = {fact.key for fact in facts_of(body)}
    for fact in facts_of(before):
        if fact.key not in current and fact not in facts_of(after):
            body = _insert(body, CURRENT, fact)
    return _without_empty(_without_empty(body, CURRENT), EARLIER)


def _without_empty(body: str, section: str) -> str:
    """Return the body without the heading of a section if the section is empty."""
    span = _section(body, section)
    if span is None or body[slice(*span)].strip():
        return body
    start = body.rfind(f"## {section}", 0, span[0])
    return body[:start].rstrip("\n") + "\n" + ("\n" if body[span[1] :] else "") + body[span[1] :]


def _facts_with_spans(body: str, section: str) -> Iterator[tuple[PageFact, int, int]]:
    span = _section(body, section)
    if span is None:
        return
    for match in _FACT.finditer(body, *span):
        fact = PageFact(match["date"], match["source"] or "", match["statement"], match["quote"] or "")
        yield fact, match.start(), match.end()


def _section(body: str, title: str) -> tuple[int, int] | None:
    """Return the start and end of the text under a heading, or None if the heading is missing."""
    headings = list(markdown.headings(body))
    for number, heading in enumerate(headings):
        if heading.level == 2 and heading.text == title:
            begin = min(len(body), heading.end + body.startswith("\n", heading.end))
            return begin, headings[number + 1].start if number + 1 < len(headings) else len(body)
    return None


def _insert(body: str, section: str, fact: PageFact) -> str:
    span = _section(body, section)
    if span is None:
        # The current facts precede the earlier ones.
        later = _section(body, EARLIER)
        end = body.rfind("## ", 0, later[0]) if later is not None and section == CURRENT else len(body)
        head, tail = body[:end].rstrip("\n"), body[end:]
        head = f"{head}\n\n" if head else ""
        return f"{head}## {section}\n{fact.text}" + (f"\n{tail}" if tail else "")
    begin, end = span
    inside, tail = body[begin:end].rstrip("\n"), body[end:]
    inside = f"{inside}\n" if inside else ""
    return body[:begin] + inside + fact.text + (f"\n{tail}" if tail else "")


def _without(body: str, fact: PageFact, section: str = CURRENT) -> str:
    for page_fact, start, end in _facts_with_spans(body, section):
        if (page_fact.date, page_fact.key) == (fact.date, fact.key):
            return body[:start] + body[end:]
    return body
