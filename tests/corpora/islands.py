"""Fictional encyclopedia of an archipelago, with questions whose answers are known.

Unlike the company's wiki, it has encyclopedia articles, council minutes, and diaries, with many similar
names. `islands.toml` has its words; a seed makes the pages the same on every machine. The questions are
of these kinds: `fact`, `open` (in other words than the page), `temporal`, `multi-hop` (the answer is on a
page that another one links to), and `list` (several pages answer).
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.corpora.wiki import MONTHS, Page, Question, Wiki, slug

WORDS: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
Made = Iterator[tuple[Page, list[Question]]]


@dataclass
class _World:
    """Names that pages refer to each other by."""

    draw: random.Random
    villages: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    people: list[str] = field(default_factory=list[str])
    homes: dict[str, str] = field(default_factory=dict[str, str])

    def link(self, folder: str, name: str) -> str:
        return f"[[{folder}/{slug(name)}|{name}]]"


def islands(seed: int = 11) -> Wiki:
    draw = random.Random(seed)  # noqa: S311  # a corpus that is the same everywhere
    world = _World(draw)
    names = [f"{head} {tail}" for head in WORDS["heads"] for tail in WORDS["tails"]]
    draw.shuffle(names)
    for number, island in enumerate(WORDS["islands"]):
        world.villages[island] = names[3 * number : 3 * number + 3]
    people = [f"{first} {last}" for first in WORDS["first_names"] for last in WORDS["last_names"]]
    draw.shuffle(people)
    world.people = people[:70]
    villages = [village for names in world.villages.values() for village in names]
    world.homes = {person: draw.choice(villages) for person in world.people}
    results: list[tuple[Page, list[Question]]] = []
    for part in (_islands, _villages, _people, _festivals, _ships, _species, _minutes, _diaries, _dishes):
        results += part(world)
    return Wiki(
        tuple(page for page, _ in results), tuple(question for _, request in results for question in request)
    )


def _islands(world: _World) -> Made:
    for number, island in enumerate(WORDS["islands"]):
        shape = WORDS["landscapes"][number % len(WORDS["landscapes"])]
        trade = WORDS["industries"][number * 3 % len(WORDS["industries"])]
        area, bought = world.draw.randrange(3, 190), world.draw.randrange(1470, 1890)
        villages = ", ".join(world.link("villages", name) for name in world.villages[island])
        body = (
            f"{island} is {shape}. It measures {area} square kilometres "
            f"and lived on {trade} until the war.\n\n"
            f"Its villages are {villages}. The crown bought it in {bought} for a debt of the last earl."
        )
        page = Page(f"islands/{slug(island)}", island, body, "island")
        yield (
            page,
            [
                Question(f"How large is {island}?", (page.slug,), "fact"),
                Question(f"In which year did the crown acquire {island}?", (page.slug,), "temporal"),
                Question(f"What did the inhabitants of {island} make a living from?", (page.slug,), "open"),
            ],
        )


def _villages(world: _World) -> Made:
    for island, names in world.villages.items():
        for name in names:
            houses, well = (
                world.draw.randrange(9, 240),
                world.draw.choice(("sweet", "brackish", "dry in August")),
            )
            residents = [person for person, home in world.homes.items() if home == name]
            known = "".join(f" {world.link('people', person)} lived here." for person in residents[:2])
            body = (
                f"{name} is a village of {houses} houses on {world.link('islands', island)}. "
                f"The well is {well}.{known}\n\nThe pier is {world.draw.randrange(20, 160)} metres long."
            )
            page = Page(f"villages/{slug(name)}", name, body, "village")
            requests = [Question(f"How many houses are there in {name}?", (page.slug,), "fact")]
            if residents:
                slugs = (f"villages/{slug(name)}", f"islands/{slug(island)}")
                requests.append(
                    Question(
                        f"On which island is the village where {residents[0]} lived?", slugs, "multi-hop"
                    )
                )
            yield page, world.draw.sample(requests, 1)


def _people(world: _World) -> Made:
    for number, person in enumerate(world.people):
        trade, deed, asked_deed = WORDS["trades"][number % len(WORDS["trades"])]
        born, home = world.draw.randrange(1720, 1900), world.homes[person]
        first = person.split()[0]
        other = world.people[(number + 17) % len(world.people)]
        body = (
            f"{person} (born {born}) was a {trade} of {world.link('villages', home)}. {first} {deed}.\n\n"
            f"## Family\n\nMarried {world.link('people', other)} in {born + world.draw.randrange(19, 40)}; "
            f"{world.draw.randrange(1, 9)} children."
        )
        page = Page(f"people/{slug(person)}", person, body, "person")
        target = f"people/{slug(other)}"
        requests = [
            Question(f"When was {person} born?", (page.slug,), "temporal"),
            Question(f"Which resident of {home} {asked_deed}?", (page.slug,), "open"),
            Question(f"What did the person whom {person} married do?", (page.slug, target), "multi-hop"),
            Question(f"What was {person}'s occupation?", (page.slug,), "fact"),
        ]
        yield page, world.draw.sample(requests, 2)


def _festivals(world: _World) -> Made:
    for number in range(30):
        custom, request = WORDS["customs"][number % len(WORDS["customs"])]
        island = WORDS["islands"][(number * 7) % len(WORDS["islands"])]
        month, name = (
            MONTHS[number % 12],
            f"{('Tar', 'Tub', 'Door', 'Coat', 'Whale', 'Yawn')[number % 6]} Night of {island}",
        )
        start_year = world.draw.randrange(1600, 1950)
        body = f"Held every {month} on {world.link('islands', island)} since {start_year}. {custom}."
        page = Page(f"festivals/{slug(name)}-{start_year}", f"{name}, since {start_year}", body, "festival")
        choices = [
            Question(f"{request} on {island}?", (page.slug,), "open"),
            Question(f"Which festival takes place on {island} in {month}?", (page.slug,), "temporal"),
        ]
        yield page, choices


def _ships(world: _World) -> Made:
    for number in range(40):
        fate, request = WORDS["fates"][number % len(WORDS["fates"])]
        builder = world.people[(number * 3) % len(world.people)]
        adjective = ("Bonny", "Grey", "Brave", "Silent", "Merry")[number % 5]
        ending = ("II", "of the Isles", "Rose", "Star")[number % 4]
        name = f"{adjective} {world.draw.choice(WORDS['first_names'])} {ending}"
        launched = world.draw.randrange(1780, 1900)
        lost = launched + world.draw.randrange(3, 50)
        body = (
            f"{name} was launched in {launched} by {world.link('people', builder)}.\n\n"
            f"In {MONTHS[number % 12]} {lost} she {fate}."
        )
        page = Page(f"ships/{slug(name)}-{number}", name, body, "ship")
        home = world.homes[builder]
        yield (
            page,
            world.draw.sample(
                [
                    Question(f"Which vessel {request} in {lost}?", (page.slug,), "open"),
                    Question(
                        f"What happened to the {name} in {MONTHS[number % 12]} {lost}?",
                        (page.slug,),
                        "temporal",
                    ),
                    Question(
                        f"In which village did the builder of the {name} live?",
                        (page.slug, f"people/{slug(builder)}"),
                        "multi-hop",
                    ),
                    Question(
                        f"Who launched the {name} of {launched}, and where is {home}?",
                        (page.slug, f"villages/{slug(home)}"),
                        "multi-hop",
                    ),
                ],
                2,
            ),
        )


def _species(world: _World) -> Made:
    for number, (name, peculiar, request) in enumerate(WORDS["species"]):
        habitats = world.draw.sample(WORDS["islands"], 2)
        result = world.people[(number * 5 + 1) % len(world.people)]
        body = (
            f"The {name} {peculiar}. It occurs on {world.link('islands', habitats[0])} and "
            f"{world.link('islands', habitats[1])}, "
            f"and was first described by {world.link('people', result)}."
        )
        page = Page(f"nature/{slug(name)}", name.capitalize(), body, "species")
        yield (
            page,
            [
                Question(f"What {request}?", (page.slug,), "open"),
                Question(
                    f"Where was the person from who described the {name}?",
                    (page.slug, f"people/{slug(result)}"),
                    "multi-hop",
                ),
            ],
        )


def _minutes(world: _World) -> Made:
    for number in range(60):
        what, why, request = WORDS["decisions"][number % len(WORDS["decisions"])]
        island = WORDS["islands"][(number * 11 + number // 12) % len(WORDS["islands"])]
        year, month, day = 1890 + number % 40, number % 12 + 1, number % 27 + 1
        chair = world.people[(number * 13) % len(world.people)]
        body = (
            f"The council of {world.link('islands', island)} met with {world.link('people', chair)} "
            f"in the chair. It was resolved to {what}, since {why}. The treasurer dissented."
        )
        page = Page(
            f"council/{slug(island)}/{year}-{month:02}-{day:02}", f"Minutes of {island}", body, "minutes"
        )
        yield (
            page,
            world.draw.sample(
                [
                    Question(f"Why did {island} {what}?", (page.slug,), "fact"),
                    Question(
                        f"What did the council of {island} resolve in {MONTHS[month - 1]} {year}?",
                        (page.slug,),
                        "temporal",
                    ),
                    Question(f"What was decided on {island} about {request}?", (page.slug,), "open"),
                    Question(
                        f"Who was in the chair at {island} on {day} {MONTHS[month - 1]} {year}?",
                        (page.slug,),
                        "temporal",
                    ),
                ],
                2,
            ),
        )


def _diaries(world: _World) -> Made:
    writers = world.people[:5]
    for number in range(60):
        writer = writers[number % 5]
        text, request = WORDS["entries"][(number // 5) % len(WORDS["entries"])]
        year, month, day = 1901 + number % 7, (number * 5) % 12 + 1, number % 28 + 1
        page = Page(
            f"diaries/{slug(writer)}/{year}-{month:02}-{day:02}",
            f"Diary of {writer}, {day} {MONTHS[month - 1]} {year}",
            f"{('Calm.', 'Wind from the north.', 'Rain.', 'Clear and cold.')[number % 4]} {text}",
            "diary",
        )
        first = writer.split()[0]
        yield (
            page,
            world.draw.sample(
                [
                    Question(f"When did {writer} note this: {request}?", (page.slug,), "open"),
                    Question(
                        f"What did {first} write in {MONTHS[month - 1]} {year}?", (page.slug,), "temporal"
                    ),
                ],
                1,
            ),
        )


def _dishes(world: _World) -> Made:
    for number, (name, made_of, request) in enumerate(WORDS["dishes"]):
        people = [world.people[(number + 7 * step) % len(world.people)] for step in range(3)]
        for step, person in enumerate(people):
            body = (
                f"{world.link('people', person)} made {name} of {made_of}, "
                f"{('with mace', 'without salt', 'over peat')[step]}."
            )
            page = Page(
                f"recipes/{slug(name)}-by-{slug(person)}", f"{name.capitalize()} by {person}", body, "recipe"
            )
            slugs = tuple(f"recipes/{slug(name)}-by-{slug(other)}" for other in people)
            questions = [Question(f"How did {person} cook {name}?", (page.slug,), "fact")]
            if not step:
                questions.append(Question(f"Which recipes are there for {name}?", slugs, "list"))
                questions.append(Question(f"Who made a {request}?", slugs, "list"))
            yield page, questions
