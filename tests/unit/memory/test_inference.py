"""Inferred links on both databases: created, pending, withdrawn, confirmed, dismissed, and private."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from sixfold.core.database import Query, Transaction, one
from sixfold.core.memory.models import Caller
from sixfold.core.memory.relation_extraction import service as inference
from tests.harness import databases
from tests.unit.memory.relation_fixtures import RelationFixture, name, open_relations

WORKS = "Ada Byron works at Bell Labs."


@pytest.fixture(params=databases.BACKENDS)
async def relations(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RelationFixture]:
    async with open_relations(request.param, tmp_path) as result:
        yield result


async def people(relations: RelationFixture) -> None:
    await relations.save("people/ada-byron", "", "Ada Byron", "person")
    await relations.save("companies/bell-labs", "", "Bell Labs", "company")


async def test_sentence_links_named_pages_and_stores_its_position(relations: RelationFixture) -> None:
    await people(relations)
    await relations.save("notes/today", f"Rain. {WORKS}")
    (link,) = (await relations.links("people/ada-byron")).values()
    assert (link.type, link.target, link.context, link.origin) == (
        "works_at", "companies/bell-labs", WORKS, "inferred",
    )  # fmt: skip
    (result,) = await relations.evidence("notes/today")
    assert (result.pattern, result.start, result.sentence) == ("works_at.verb", 6, WORKS)


async def test_inferred_link_updates_the_index_of_its_subject(relations: RelationFixture) -> None:
    await people(relations)
    before = await changes(relations)
    await relations.save("notes/today", WORKS)
    after = await changes(relations)
    assert {name for name in after if after[name] != before.get(name)} == {"ada-byron", "today"}


async def changes(relations: RelationFixture) -> dict[str, int]:
    """Return the number of the last change of each page by its name."""

    def work() -> Transaction[dict[str, int]]:
        rows = yield Query(
            "memory_index_changed",
            {"account_id": relations.writes.account_id, "change": 0, "page_id": "", "limit": 100},
        )
        result: dict[str, int] = {}
        for row in rows:
            page = yield from one("page_by_id", account_id=relations.writes.account_id, id=row["page_id"])
            assert page is not None
            result[name(page["slug"])] = row["change"]
        return result

    return await relations.database.read(work())


async def test_link_to_a_name_is_pending_until_its_page_exists(relations: RelationFixture) -> None:
    await relations.save("notes/today", WORKS)
    (result,) = await relations.evidence("notes/today")
    assert not result.resolved
    await relations.save("people/ada-byron", "", "Ada Byron", "person")
    assert await relations.links("people/ada-byron") == {}
    await relations.save("companies/bell-labs", "", "Bell Labs", "company")
    assert list(await relations.links("people/ada-byron")) == [("works_at", "companies/bell-labs")]


async def test_link_is_withdrawn_with_its_last_sentence(relations: RelationFixture) -> None:
    await people(relations)
    await relations.save("notes/one", WORKS)
    await relations.save("notes/two", "We know that Ada Byron works for Bell Labs.")
    await relations.save("notes/one", "Nothing.")
    (link,) = (await relations.links("people/ada-byron")).values()
    assert link.context == "We know that Ada Byron works for Bell Labs."
    await relations.delete("notes/two")
    assert await relations.links("people/ada-byron") == {}


async def test_dismissed_link_stays_dismissed_with_its_sentence(relations: RelationFixture) -> None:
    await people(relations)
    await relations.save("notes/one", WORKS)
    await relations.judge("people/ada-byron", "works_at", "companies/bell-labs", "dismissed")
    await relations.save("notes/one", f"{WORKS} And it rains.")
    assert await relations.links("people/ada-byron") == {}
    assert await relations.answers("who works at Bell Labs?") == {}
    await relations.save("notes/one", "Ada Byron is an engineer at Bell Labs.")
    assert list(await relations.links("people/ada-byron")) == [("works_at", "companies/bell-labs")]


async def test_a_confirmed_link_outlives_its_sentence(relations: RelationFixture) -> None:
    await people(relations)
    await relations.save("notes/one", WORKS)
    await relations.judge("people/ada-byron", "works_at", "companies/bell-labs", "confirmed")
    await relations.save("notes/one", "Nothing.")
    (link,) = (await relations.links("people/ada-byron")).values()
    assert link.origin == "confirmed"
    assert (await relations.answers("where does Ada Byron work?"))["bell-labs"] == 1.0


async def test_an_explicit_link_is_never_replaced(relations: RelationFixture) -> None:
    await relations.save("companies/bell-labs", "", "Bell Labs", "company")
    await relations.save(
        "people/ada-byron", f"- works_at [[companies/bell-labs]]\n\n{WORKS}", "Ada Byron", "person"
    )
    assert await relations.links("people/ada-byron") == {}
    assert (await relations.answers("who works at Bell Labs"))["ada-byron"] == 1.0


async def test_deleted_page_has_no_links_until_it_is_restored(relations: RelationFixture) -> None:
    await people(relations)
    await relations.save("notes/one", WORKS)
    await relations.delete("companies/bell-labs")
    assert await relations.links("people/ada-byron") == {}
    await relations.save("companies/bell-labs", "", "Bell Labs", "company")
    assert list(await relations.links("people/ada-byron")) == [("works_at", "companies/bell-labs")]


async def test_link_is_withdrawn_when_the_page_title_changes(relations: RelationFixture) -> None:
    await people(relations)
    await relations.save("notes/one", WORKS)
    await relations.save("companies/bell-labs", "", "Something Else", "company")
    # The link is found by the slug of the page.
    assert list(await relations.links("people/ada-byron")) == [("works_at", "companies/bell-labs")]
    await relations.save("people/ada-byron", "", "Ada Lovelace", "person", aliases=("Countess",))
    await relations.save("notes/one", "Countess works at Bell Labs.")
    assert list(await relations.links("people/ada-byron")) == [("works_at", "companies/bell-labs")]


async def test_first_name_resolves_only_while_unique(relations: RelationFixture) -> None:
    await people(relations)
    await relations.save("notes/one", "Ada works at Bell Labs.")
    assert list(await relations.links("people/ada-byron")) == [("works_at", "companies/bell-labs")]
    await relations.save("people/ada-nilsson", "", "Ada Nilsson", "person")
    assert await relations.links("people/ada-byron") == {}
    await relations.save("notes/one", "Ada Byron came. Ada works at Bell Labs.")
    assert list(await relations.links("people/ada-byron")) == [("works_at", "companies/bell-labs")]


async def test_relation_with_unsuitable_kinds_gives_no_link(relations: RelationFixture) -> None:
    await people(relations)
    await relations.save("places/oslo", "", "Oslo", "place")
    await relations.save(
        "notes/one", "Bell Labs works at Oslo. Bell Labs is based in Oslo. Oslo married Ada Byron."
    )
    assert [(row.relation, row.subject) for row in await relations.evidence("notes/one")] == [
        ("located_in", "companies/bell-labs")
    ]


async def test_sentence_outside_a_key_scope_is_hidden(relations: RelationFixture) -> None:
    await relations.save("people/ada-byron", "", "Ada Byron", "person", collections=("open",))
    await relations.save("companies/bell-labs", "", "Bell Labs", "company", collections=("open",))
    await relations.save("notes/secret", WORKS, collections=("closed",))
    narrow = replace(relations.writes, collections=("open",))
    assert await relations.links("people/ada-byron", narrow) == {}
    assert await relations.answers("who works at Bell Labs", ("open",)) == {}
    assert (await relations.answers("who works at Bell Labs"))["ada-byron"] == 1.0
    await relations.save("notes/secret", WORKS, collections=("closed", "open"))
    assert list(await relations.links("people/ada-byron", narrow)) == [("works_at", "companies/bell-labs")]
    assert (await relations.answers("who works at Bell Labs", ("open",)))["ada-byron"] == 1.0


async def test_page_leaving_a_collection_takes_its_sentences(relations: RelationFixture) -> None:
    await relations.save("people/ada-byron", "", "Ada Byron", "person")
    await relations.save("companies/bell-labs", "", "Bell Labs", "company", collections=("open",))
    await relations.save("notes/secret", WORKS)
    assert list(await relations.links("people/ada-byron")) == [("works_at", "companies/bell-labs")]
    await relations.save("people/ada-byron", "", "Ada Byron", "person", collections=("open",))
    assert await relations.links("people/ada-byron") == {}


async def test_names_of_other_accounts_are_not_resolved(relations: RelationFixture) -> None:
    await people(relations)
    other_account = RelationFixture(relations.database, Caller(await _another_account(relations), "ben"))
    await other_account.save("notes/one", WORKS)
    (result,) = await other_account.evidence("notes/one")
    assert not result.resolved
    assert await relations.links("people/ada-byron") == {}
    assert await other_account.answers("who works at Bell Labs") == {}


async def _another_account(relations: RelationFixture) -> str:
    from sixfold.core.accounts import accounts  # noqa: PLC0415 - this one test needs it

    return (await relations.database.write(accounts.create("ben@example.com"))).id


async def test_batch_infers_the_same_links_as_single_pages(relations: RelationFixture) -> None:
    await people(relations)
    bodies = [WORKS, "Ada Byron lives in Oslo.", "Bell Labs owns Hooli."]
    results = [await relations.save(f"notes/n{number}", "") for number in range(3)]
    batch = [replace(page, body=body, version=2) for page, body in zip(results, bodies, strict=True)]
    await relations.database.write(inference.refresh_many(batch))
    assert [len(await relations.evidence(f"notes/n{number}")) for number in range(3)] == [1, 1, 1]
    assert list(await relations.links("people/ada-byron")) == [("works_at", "companies/bell-labs")]


async def test_question_with_a_month_prefers_events_of_that_month(relations: RelationFixture) -> None:
    for person in ("Ada Byron", "Alan Turing", "Grace Hopper"):
        await relations.save(f"people/{person.lower().replace(' ', '-')}", "", person, "person")
    await relations.save("meetings/2026-05-12-lunch", "Ada Byron met Alan Turing.")
    await relations.save("notes/june", "On 9 June 2026 Ada Byron met Grace Hopper.")
    result = await relations.answers("Who did Ada Byron meet in May?")
    assert result["alan-turing"] == 1.0
    assert result["grace-hopper"] < 0.5
    assert result["2026-05-12-lunch"] < result["alan-turing"]


@pytest.mark.parametrize(
    "text", ["", "?", "who", "who works at", "who works at " + "x" * 5000, "💥" * 50, "'; DROP TABLE page"]
)
async def test_any_text_is_a_safe_question(tmp_path: Path, text: str) -> None:
    async with open_relations(None, tmp_path) as relations:
        assert await relations.answers(text) == {}
