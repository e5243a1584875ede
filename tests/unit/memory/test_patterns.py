"""The table of relations: every example matches its relation, and no text is slow."""

from __future__ import annotations

import random
import re

import pytest

from sixfold.core.memory.models import MemoryPage
from sixfold.core.memory.relation_extraction import dates, entities, extraction, relations, sentences
from sixfold.core.memory.relation_extraction import service as inference
from sixfold.core.memory.relation_extraction.patterns import Pattern

TABLE = inference.table()


def page(body: str, title: str = "Somebody", kind: str = "note", slug: str = "notes/somebody") -> MemoryPage:
    return MemoryPage("page_1", "acct_1", slug, title, body, kind, (), (), 1, 0, 0, "ada")


def stated_relations(body: str, **fields: str) -> set[tuple[str, str, str]]:
    return {(row.subject, row.relation, row.object) for row in extraction.read(page(body, **fields), TABLE)}


@pytest.mark.parametrize("pattern", TABLE.patterns, ids=lambda pattern: pattern.id)
def test_every_example_gives_exactly_its_relation(pattern: Pattern) -> None:
    masked = entities.mask(pattern.example, TABLE.words)
    results = {
        (slots.relation, slots.subject.text, slots.object.text)
        for slots in relations.statements(masked, TABLE)
    }
    assert results == {(pattern.relation, *pattern.means)}


@pytest.mark.parametrize("pattern", TABLE.patterns, ids=lambda pattern: pattern.id)
def test_uncertain_or_questioned_example_gives_no_relation(pattern: Pattern) -> None:
    example = pattern.example.rstrip(".")
    for text in (f"If {example}, we shall see", f"Nobody knows whether {example}", f"{example}?"):
        assert relations.statements(entities.mask(text, TABLE.words), TABLE) == [], text


@pytest.mark.parametrize(
    "text",
    [
        "Rumour: Ada Byron joins Bell Labs.",
        "Example: Ada Byron works at Bell Labs.",
        "## Ideas\n- Ada Byron works at Bell Labs.",
        "Had Ada Byron founded Bell Labs, it would have failed.",
        "Ada Byron works at Bell Labs, I think.",
        "Ada Byron works at Bell Labs in Oslo (I guess).",
    ],
)
def test_uncertain_statement_gives_no_link(text: str) -> None:
    assert stated_relations(text) == set()
    assert stated_relations("Ada Byron works at Bell Labs, and I think that she is kind.") != set()


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("Globex bought Bell Labs shares.", set()),
        ("Ada Byron founded the Bell Labs book club.", set()),
        ("Ada Byron wrote the Falcon handbook in May.", set()),
        ("Ada Byron works at Bell Labs partner Globex.", set()),
        ("Ada Byron works at the Bell Labs office.", {"works_at"}),
        ("Globex bought Bell Labs yesterday.", {"acquired"}),
    ],
)
def test_possessive_name_is_not_the_subject(text: str, means: set[str]) -> None:
    assert {relation for _, relation, _ in stated_relations(text)} == means


def test_ids_of_patterns_are_unique_and_begin_with_their_table() -> None:
    ids = [pattern.id for pattern in TABLE.patterns]
    assert len(ids) == len(set(ids))
    pasts = {row.past: name for name, row in TABLE.relations.items() if row.past}
    for pattern in TABLE.patterns:
        assert pattern.id.partition(".")[0] == pasts.get(pattern.relation, pattern.relation)


def test_every_relation_is_queryable_and_names_known_kinds() -> None:
    kinds = set(TABLE.kinds.values())
    for row in TABLE.relations.values():
        assert row.subjects | row.objects <= kinds, row.name
        assert {row.otherwise, row.past, *row.implies} - {""} <= TABLE.relations.keys(), row.name
        if row.name not in {past.past for past in TABLE.relations.values()}:
            assert row.ask, row.name


HOSTILE = {
    "capitals": "A " * 50_000,
    "names": "Ada Byron and " * 10_000,
    "one name in commas": "Ada, " * 20_000,
    "a role without end": "Ada is " + "a big " * 20_000 + "engineer at Bell",
    "brackets": "[" * 50_000 + "]" * 50_000,
    "wiki links": "[[" * 50_000,
    "stars": "*" * 100_000,
    "quotation marks": '"' * 100_000,
    "one word": "x" * 200_000,
    "full stops": ". " * 100_000,
    "lists": "- Ada works at Bell\n" * 5_000,
    "fields": "Employer: " * 20_000,
    "nested quotes": "> " * 50_000,
    "unclosed code": "`" * 99_999,
    "sentences": "Ada works at Bell. " * 10_000,
    "hyphens": "a-" * 50_000,
    "titles": "Dr. " * 20_000,
    "dates": "1 May 2026 " * 10_000,
    "front matter": "---\naliases:\n" + "- x\n" * 20_000,
    "spaces": "Ada" + " " * 100_000 + "works at Bell",
    "new lines": "\n" * 200_000,
    "particles": "Ada " + "de la " * 20_000 + "Cruz works at Bell",
    "ampersands": "A&" * 50_000,
    "doubtful facts": "If Ada Byron works at Bell Labs, and Bell Labs is part of Globex, who knows. "
    * 12_000,
    "tables": "| a | b |\n|---|---|\n" + "| Ada | Bell |\n" * 20_000,
    "columns": "| a " * 50_000 + "|\n|" + "---|" * 50_000,
    "no script at all": "\U000e0001\ue000\uf000\uffff" * 10_000,
}


# Each text takes milliseconds, but a pattern that backtracks would not end.
@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_text_is_read_in_bounded_time(text: str) -> None:
    assert len(extraction.read(page(text), TABLE)) <= extraction.MAX_STATEMENTS
    extraction.names_of(page(text, title=text[:500]), (), TABLE)
    inference.forms().read(text[:300])


@pytest.mark.timeout(60)
def test_shuffled_words_of_the_table_give_valid_relations() -> None:
    """Ten thousand sentences of the table's own words in any order: what is found has two different names."""
    dice = random.Random(6)  # noqa: S311 - a repeatable shuffle, no secret
    words = sorted({word for pattern in TABLE.patterns for word in pattern.example.split()})
    for _ in range(2_000):
        text = " ".join(dice.choices(words, k=dice.randint(3, 25)))
        for row in extraction.read(page(text), TABLE):
            assert row.subject
            assert row.subject != row.object


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("on 3 May 2026", "2026-05-03"),
        ("on May 3rd, 2026", "2026-05-03"),
        ("in May 2026", "2026-05"),
        ("in May", "--05"),
        ("since 2019", "2019"),
        ("2026-05-03", "2026-05-03"),
        ("2026-05", "2026-05"),
        ("on the 31 February 2026", ""),
        ("in 1066", None),
        ("May works", None),
        ("in Maybe", None),
    ],
)
def test_dates_are_parsed_in_common_notations(text: str, moment: str | None) -> None:
    assert [result.moment for result in dates.find(text)] == ([] if moment is None else [moment])


def test_dates_agree_where_one_is_a_part_of_the_other() -> None:
    assert dates.agree("2026-05-03", "2026-05")
    assert dates.agree("2026", "2026-05-03")
    assert dates.agree("2026-05-03", "--05")
    assert dates.agree("--05", "--05")
    assert not dates.agree("2026-05-03", "2026-06")
    assert not dates.agree("2026", "--05")
    assert not dates.agree("", "2026")


def test_relative_dates_are_counted_from_the_day_of_the_page() -> None:
    result = dates.find("yesterday and last month", "2026-05-03")
    assert [date.moment for date in result] == ["2026-05-02", "2026-04"]
    assert stated_relations("Yesterday Ada Byron met Alan Turing.", slug="diary/2026-05-03")
    (row,) = extraction.read(page("Ada Byron met Alan Turing yesterday.", slug="diary/2026-05-03"), TABLE)
    assert row.moment == "2026-05-02"


def test_sentences_have_positions_and_omit_markup() -> None:
    body = (
        "# Title\n\nDr. No met J. R. Smith. He left Acme, Inc. She stayed.\n\n> Quoted.\nIt goes on.\n\n"
        "<!-- a comment\nof two lines -->\n\n"
        "```\ncode here\n```\n\n- [ ] open task\n- [x] done task\n- works_at [[companies/acme]]\n\n"
        "---\n\n| a | b |\n\n    indented\n\nLast"
    )
    result = sentences.sentences(body)
    assert [sentence.text for sentence in result] == [
        "Dr. No met J. R. Smith.", "He left Acme, Inc.", "She stayed.", "done task", "Last",
    ]  # fmt: skip
    assert all(body[row.start : row.start + len(row.text)] == row.text for row in result)


@pytest.mark.parametrize(
    "spelling",
    [
        "Bell Labs",
        "bell-labs",
        "The Bell Labs",
        "BELL LABS",
        "Bell Labs, Inc.",
        "“Bell Labs”",
        "Bell_Labs GmbH",
        "Bell  Labs",
    ],
)
def test_spellings_of_a_name_share_a_key(spelling: str) -> None:
    assert entities.key(spelling) == "bell labs"


def test_lists_give_each_of_their_names_only() -> None:
    assert stated_relations("Ada Byron, Alan Turing and Grace Hopper work at Bell Labs and Hooli.") == {
        (name, "works_at", where)
        for name in ("ada byron", "alan turing", "grace hopper")
        for where in ("bell labs", "hooli")
    }
    assert stated_relations("Ada Byron works at Globex and Alan Turing founded Hooli.") == {
        ("ada byron", "works_at", "globex"),
        ("alan turing", "founded", "hooli"),
    }


def test_pronoun_refers_to_the_only_possible_person() -> None:
    assert ("alan turing", "works_at", "hooli") in stated_relations("Alan Turing came. He works at Hooli.")
    assert stated_relations("Alan Turing met Grace Hopper. She works at Hooli.") == {
        ("alan turing", "met", "grace hopper")
    }
    assert ("/people/ada", "lives_in", "oslo") in stated_relations(
        "She lives in Oslo.", title="Ada", kind="person", slug="people/ada"
    )
    assert stated_relations("She lives in Oslo.") == set()


def test_list_item_starting_with_a_verb_is_about_the_page() -> None:
    assert stated_relations("- Uses Kafka\n- Depends on Redis\n", kind="project", slug="projects/x") == {
        ("/projects/x", "uses", "kafka"),
        ("/projects/x", "depends_on", "redis"),
    }
    assert stated_relations("- Uses Kafka\n", slug="notes/x") == set()


def test_table_lines_use_only_the_pattern_language() -> None:
    for pattern in TABLE.patterns:
        assert not re.search(r"[\\\[\]^$*+]|\(\?", pattern.text), pattern.id


def test_pronoun_refers_to_the_subject_of_the_page() -> None:
    project = {"title": "Falcon", "kind": "project", "slug": "projects/falcon"}
    assert stated_relations("Ada Byron leads it; Alan Turing reviews.", **project) == {
        ("ada byron", "leads", "/projects/falcon")
    }
    assert stated_relations("Written in 2025 by Ada Byron.", title="X", kind="document", slug="docs/x") == {
        ("ada byron", "authored", "/docs/x")
    }
    assert stated_relations("Ada Byron leads it.") == set()


def test_table_row_describes_its_first_cell() -> None:
    text = (
        "| Name | Employer | Shoes | Based in |\n|---|:-:|---|---|\n| Ada Byron | Bell Labs | 38 | Oslo |\n"
        "| [[people/alan]] | TBD | | Paris, London |\n\nno | table\n"
    )
    assert stated_relations(text) == {
        ("ada byron", "works_at", "bell labs"),
        ("ada byron", "lives_in", "oslo"),
        ("/people/alan", "lives_in", "paris"),
        ("/people/alan", "lives_in", "london"),
    }
    assert stated_relations("| Service | Owner |\n|--|--|\n| Billing | Ada Byron |") == {
        ("ada byron", "owns", "billing")
    }


def test_pronoun_resolves_to_the_only_possible_subject() -> None:
    assert stated_relations("Julia Chen founded Hooli in 2011, before she moved to London.") == {
        ("julia chen", "founded", "hooli"),
        ("julia chen", "lives_in", "london"),
    }
    assert stated_relations("Julia Chen met Ada Byron before she moved to London.") == {
        ("julia chen", "met", "ada byron")
    }


def test_attendee_is_a_name_without_its_description() -> None:
    text = "## Attendees\n- Ada Byron, lead engineer\n- Alan Turing showed the new parts to us\n- lunch\n"
    assert stated_relations(text, kind="meeting", slug="meetings/x") >= {
        ("ada byron", "attended", "/meetings/x"),
        ("alan turing", "attended", "/meetings/x"),
    }
    assert not [row for row in stated_relations(text, kind="meeting", slug="meetings/x") if row[0] == "lunch"]
    assert stated_relations("Depends on: billing-service, auth", kind="project", slug="projects/x") == {
        ("/projects/x", "depends_on", "billing service"),
        ("/projects/x", "depends_on", "auth"),
    }
