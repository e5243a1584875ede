"""Wiki of a fictional company with questions whose answers are known: the corpus of the retrieval gate.

`wiki.toml` has its words; a seed makes the pages the same on every machine. Questions use other words than
the pages: for an outage they describe its symptoms, for a rule the action that it covers. Some answers are
in one section of a long page, some in the log entry of the next day, which names its project by its
folder alone.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORDS: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
PEOPLE: list[str] = WORDS["people"]
_YEAR = "January February March April May June July August September October November December"
MONTHS = _YEAR.split()


@dataclass(frozen=True, slots=True)
class Page:
    """Page as it is written."""

    slug: str
    title: str
    body: str
    type: str


@dataclass(frozen=True, slots=True)
class Question:
    """Question, the slugs of the pages that answer it, and its kind of difficulty."""

    text: str
    answers: tuple[str, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class Wiki:
    """Pages in the order in which they are written, and the questions."""

    pages: tuple[Page, ...]
    questions: tuple[Question, ...]


def slug(text: str) -> str:
    """Return `people/ines-okafor` for `Ines Okafor`, without the folder."""
    return "-".join("".join(char if char.isalnum() else " " for char in text.lower()).split())


def wiki(seed: int = 7) -> Wiki:
    draw = random.Random(seed)  # noqa: S311  # a corpus that is the same everywhere
    results: list[tuple[Page, Sequence[Question]]] = []
    for part in (_people, _firms, _projects, _decisions, _incidents, _guides, _meetings, _logs):
        results += part(draw)
    return Wiki(
        tuple(page for page, _ in results), tuple(question for _, request in results for question in request)
    )


def _person(draw: random.Random, number: int) -> tuple[Page, list[Question]]:
    name = PEOPLE[number]
    first = name.split()[0]
    hobby, asked_hobby = _turn("hobbies", number)
    trait, asked_trait = _turn("traits", number)
    role, place = _turn("roles", number), draw.choice(WORDS["places"])
    lines = [
        f"{name} is a {role} in {place} and joined in {draw.randrange(2014, 2025)}.",
        f"Earlier {first} {_turn('before', number * 5)}.",
        f"{first} {hobby} and {trait}.",
    ]
    if number % 6 == 0:
        lines.append(f"{first} resigned in {draw.choice(MONTHS)} 2025 to study.")
    page = Page(f"people/{slug(name)}", name, " ".join(lines), "person")
    requests = [
        Question(f"What did {name} do before joining us?", (page.slug,), "fact"),
        Question(f"Which {role} in {place} {asked_hobby}?", (page.slug,), "described"),
        Question(f"What should I know about {first} who {asked_trait}?", (page.slug,), "paraphrase"),
    ]
    return page, draw.sample(requests, 2)


def _people(draw: random.Random) -> Iterator[tuple[Page, list[Question]]]:
    for number in range(len(PEOPLE)):
        yield _person(draw, number)


def _firms(draw: random.Random) -> Iterator[tuple[Page, list[Question]]]:
    for number, firm in enumerate(WORDS["firms"]):
        good, asked_good = WORDS["goods"][number]
        clause, request = _turn("contracts", number)
        contact, place = draw.choice(PEOPLE), draw.choice(WORDS["places"])
        since = draw.randrange(2015, 2025)
        body = (
            f"{firm} {good} and is a customer since {since}. They sit in {place}.\n\n"
            f"- account_manager [[people/{slug(contact)}]]\n\n"
            f"## Contract\n\n{clause}\n\n{_filler(draw)}"
        )
        page = Page(f"companies/{slug(firm)}", firm, body, "company")
        yield (
            page,
            [
                Question(request.format(firm=firm), (page.slug,), "fact"),
                Question(
                    f"Which customer in {place} has to do with {asked_good}?", (page.slug,), "described"
                ),
            ],
        )


def _projects(draw: random.Random) -> Iterator[tuple[Page, list[Question]]]:
    for number, project in enumerate(WORDS["projects"]):
        lead, firm = draw.choice(PEOPLE), WORDS["firms"][number]
        things, others = draw.sample(WORDS["things"], 2), draw.sample(PEOPLE, 2)
        body = (
            f"{project} is what we build for [[companies/{slug(firm)}|{firm}]], "
            f"which {WORDS['goods'][number][0]}.\n\n"
            f"## Team\n\n[[people/{slug(lead)}|{lead}]] leads it; {others[0]} reviews.\n\n"
            f"## State\n\nIt started in {draw.choice(MONTHS)} 2025 and is to go live in "
            f"{draw.choice(MONTHS)} 2026. {_filler(draw)}\n\n"
            f"## Risks\n\nThe {things[0]} is older than anyone here, and {others[1]} is the last who knows "
            f"the {things[1]}."
        )
        page = Page(f"projects/{slug(project)}", project, body, "project")
        yield (
            page,
            [
                Question(f"Who is in charge of {project}?", (page.slug,), "fact"),
                Question(f"What are we building for {firm}?", (page.slug,), "fact"),
            ],
        )


def _decisions(draw: random.Random) -> Iterator[tuple[Page, list[Question]]]:
    for number, row in enumerate(WORDS["decisions"], 1):
        body = (
            f"# {row['title']}\n\nDecided on {_day(draw)} by {', '.join(draw.sample(PEOPLE, 3))}.\n\n"
            f"{row['text']}\n\n{_filler(draw)}"
        )
        page = Page(f"decisions/{number:04d}", row["title"], body, "decision")
        yield page, [Question(request, (page.slug,), "paraphrase") for request in row["asked"]]


def _incidents(draw: random.Random) -> Iterator[tuple[Page, list[Question]]]:
    for row in WORDS["incidents"]:
        title, day = row["title"], _day(draw)
        on_call = draw.choice(PEOPLE)
        body = f"{title} on {day}. {on_call} was on call.\n\n{row['text']} {_filler(draw)}"
        page = Page(f"incidents/{day}-{slug(title)[:30].strip('-')}", title, body, "incident")
        yield page, [Question(request, (page.slug,), "paraphrase") for request in row["asked"]]


def _guides(draw: random.Random) -> Iterator[tuple[Page, list[Question]]]:
    for row in WORDS["guides"]:
        pieces = [f"What everybody should know. {' '.join(draw.sample(WORDS['filler'], 3))}"]
        for name, text, _ in row["sections"]:
            padding = " ".join(draw.choices(WORDS["filler"], k=14))
            pieces.append(f"## {name}\n\n{text}\n\n{padding}")
        page = Page(f"guides/{slug(row['title'])}", row["title"], "\n\n".join(pieces), "guide")
        yield page, [Question(request, (page.slug,), "section") for _, _, request in row["sections"]]


def _meetings(draw: random.Random) -> Iterator[tuple[Page, list[Question]]]:
    for number in range(72):
        firm, month = _turn("firms", number), number // 6
        day = f"2025-{month + 1:02d}-{draw.randrange(1, 29):02d}"
        topic, people = draw.choice(WORDS["things"]), draw.sample(PEOPLE, 3)
        body = (
            f"Date: {day}\n\nPresent: {', '.join(people)}.\n\n- {people[0]} showed the {topic}.\n"
            f"- {people[1]} wants it by {draw.choice(MONTHS)}.\n- {_filler(draw)}\n- {_filler(draw)}"
        )
        page = Page(f"meetings/{day}-{slug(firm)}-{number}", f"Meeting with {firm}", body, "meeting")
        request = f"What did {people[0]} present to {firm} in {MONTHS[month]}?"
        yield page, [Question(request, (page.slug,), "date")] if number % 3 == 0 else []


def _logs(draw: random.Random) -> Iterator[tuple[Page, list[Question]]]:
    """Yield days of a project, where the answer is in the log a day after the words of the question."""
    for project in WORDS["projects"]:
        day, steps = 1, draw.sample(WORDS["steps"], len(WORDS["steps"]))
        for (first, second, request), thing in zip(
            steps, draw.sample(WORDS["things"], len(steps)), strict=True
        ):
            for text, answers in ((first.format(thing=thing), False), (second, True)):
                page = Page(
                    f"logs/{slug(project)}/2025-04-{day:02d}",
                    f"{day} April 2025",
                    f"{text} {_filler(draw)}",
                    "log",
                )
                question = Question(request.format(thing=thing, project=project), (page.slug,), "next day")
                yield page, [question] if answers and day % 4 == 2 else []
                day += 1


def _turn(table: str, number: int) -> Any:
    """Return the rows of a table one after the other, cyclically."""
    rows = WORDS[table]
    return rows[number % len(rows)]


def _day(draw: random.Random) -> str:
    return f"2025-{draw.randrange(1, 13):02d}-{draw.randrange(1, 29):02d}"


def _filler(draw: random.Random) -> str:
    return draw.choice(WORDS["filler"])
