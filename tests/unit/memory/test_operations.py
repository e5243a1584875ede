"""The registry of operations: descriptions, arguments, and results within a context limit."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.memory import operations
from sixfold.core.memory.operation_schema import Operation, OperationField
from tests.unit.memory.fixtures import MemoryFixture, open_memory

NAMES = {
    "search", "read", "write", "tag", "link", "inspect", "edit", "list", "delete", "restore", "timeline",
    "context", "history", "traverse", "fetch", "import_document",
}  # fmt: skip


@pytest.fixture
async def memory() -> AsyncIterator[MemoryFixture]:
    async with open_memory("sqlite") as result:
        yield result


async def do(memory: MemoryFixture, name: str, **inputs: Any) -> dict[str, Any]:
    """Run an operation, and check that its result is JSON."""
    answer = await operations.operations(memory.service)[name](memory.ann, inputs)
    assert json.loads(json.dumps(answer)) == json.loads(json.dumps(answer))
    return answer


@pytest.mark.parametrize(
    ("tags", "expected"),
    [(["a", "b, c"], ["a", "b, c"]), ("a, b", ["a", "b"]), ("#a,b,", ["a", "b"]), ("", [])],
)
async def test_tags_are_a_list_or_one_text_with_commas(
    memory: MemoryFixture, tags: list[str] | str, expected: list[str]
) -> None:
    saved = await do(memory, "write", slug="a", body="x", tags=tags)
    assert saved["tags"] == expected


async def test_every_operation_has_a_short_description(memory: MemoryFixture) -> None:
    result = operations.operations(memory.service)
    assert set(result) == NAMES
    for name, operation in result.items():
        assert 20 < len(operation.description) <= 120, name
        assert operation.description.endswith(".")
        schema = operation.schema()
        assert set(schema["required"]) <= set(schema["properties"])
        assert all(field["description"] for field in schema["properties"].values())
        # An import is guarded by the hash of the file.
        guarded = operation.writes and name != "import_document"
        assert ("if_version" in schema["properties"]) == guarded, name


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", ["", "x"], [1, [], True]),
        ("integer", [1, 2.0], ["1", 1.5, True, 1e300]),
        ("boolean", [True, False], [1, "true"]),
        ("strings", [["a"], "a", []], [[1], {}, 1]),
        ("object", [{}, {"a": 1}], [[], "x"]),
    ],
)
async def test_argument_of_a_wrong_type_is_refused(kind: Any, good: list[Any], bad: list[Any]) -> None:
    operation = Operation("x", "x", (OperationField("it", kind, "it"),), False, do)  # pyright: ignore[reportArgumentType] # not called
    for value in good:
        assert operation.read({"it": value})["it"] is not None
    for value in bad:
        with pytest.raises(errors.InvalidInput, match="it must be"):
            operation.read({"it": value})


async def test_all_problems_are_reported_at_once(memory: MemoryFixture) -> None:
    with pytest.raises(errors.InvalidInput) as excinfo:
        await do(memory, "search", limit=0, mode="magic", tags=[1])
    assert {problem.input for problem in excinfo.value.problems} == {"query", "limit", "mode", "tags"}


async def test_parts_of_a_long_page_sum_to_its_text(memory: MemoryFixture) -> None:
    text = "".join(f"line {number}\n" for number in range(10_000))
    await do(memory, "write", slug="long", body=text)
    parts, offset = [], 0
    while True:
        answer = await do(memory, "read", slug="long", offset=offset, max_chars=30_000)
        parts.append(answer["body"])
        if not answer["truncated"]:
            break
        assert answer["total_chars"] == len(text)
        offset = answer["next_offset"]
    assert ("".join(parts), len(parts)) == (text, 4)
    assert len(json.dumps(await do(memory, "read", slug="long"))) < 40_000
    assert len((await do(memory, "fetch", id="long"))["text"]) == len(text) or len(text) > 100_000
    assert len(json.dumps(await do(memory, "history", slug="long", version=1))) < 40_000


async def test_write_returns_the_version_without_the_body(memory: MemoryFixture) -> None:
    saved = await do(memory, "write", slug="a", body="x" * 10_000, tags=["t"])
    assert (saved["slug"], saved["version"], saved["created"], "body" in saved) == ("a", 1, True, False)
    second_result = await do(memory, "write", slug="a", body="x" * 10_000, overwrite=True)
    assert (second_result["version"], second_result["changed"]) == (1, False)
    over = await do(memory, "write", slug="a", body="y", if_version=1)
    assert (over["version"], over["created"]) == (2, False)


async def test_lists_are_limited_and_return_a_cursor(memory: MemoryFixture) -> None:
    for number in range(5):
        await do(memory, "write", slug=f"n/{number}", body="- **2026** | x")
    first = await do(memory, "list", prefix="N/", limit=3)
    rest = await do(memory, "list", prefix="n/", limit=3, cursor=first["next_cursor"])
    assert [len(first["pages"]), len(rest["pages"]), rest["next_cursor"]] == [3, 2, None]
    report = await do(memory, "inspect")
    assert (report["pages"], report["types"], len(report["orphans"])) == (
        5,
        [{"name": "note", "count": 5}],
        5,
    )


async def test_search_and_fetch_have_the_format_of_connectors(memory: MemoryFixture) -> None:
    await do(memory, "write", slug="people/ann", body="# Ann\nlikes zeppelins", type="person")
    (hit,) = (await do(memory, "search", query="zeppelins"))["results"]
    assert {"id", "title", "url"} <= hit.keys()
    fetched = await do(memory, "fetch", id=hit["id"])
    assert (fetched["id"], fetched["title"], fetched["url"]) == (hit["id"], "Ann", hit["url"])
    assert (fetched["text"], fetched["metadata"]["type"]) == ("# Ann\nlikes zeppelins", "person")


async def test_inferred_link_is_confirmed_dismissed_and_replaced(memory: MemoryFixture) -> None:
    await do(memory, "write", slug="companies/acme", body="# Acme", type="company")
    await do(memory, "write", slug="people/ann", body="# Ann Smith\nAnn Smith works at Acme.", type="person")

    async def draw() -> list[tuple[str, str]]:
        links = (await do(memory, "link", slug="people/ann"))["links"]
        return [(link["type"], link["origin"]) for link in links]

    assert await draw() == [("works_at", "inferred")]
    end = {"slug": "people/ann", "to": "companies/acme"}
    await do(memory, "link", **end, action="confirm")
    assert await draw() == [("works_at", "confirmed")]
    await do(memory, "edit", slug="people/ann", operation="append", content="And flies.")
    assert await draw() == [("works_at", "confirmed")]
    await do(memory, "link", **end, action="dismiss")
    await do(memory, "edit", slug="people/ann", operation="append", content="And sails.")
    assert await draw() == []
    await do(memory, "link", **end, type="works_at", context="she says so")
    assert await draw() == [("works_at", "explicit")]
    with pytest.raises(errors.NotFound, match="does not have an inferred link"):
        await do(memory, "link", slug="companies/acme", to="people/ann", action="confirm")


async def test_edit_changes_one_section_text_or_field(memory: MemoryFixture) -> None:
    await do(memory, "write", slug="a", body="# A\n## S\nold\n")
    await do(memory, "edit", slug="a", operation="replace_section", section="S", content="new")
    await do(memory, "edit", slug="a", operation="replace_text", find="new", replace="newer")
    await do(memory, "edit", slug="a", operation="set_fields", fields={"title": "T", "tags": "x, y"})
    page = await do(memory, "read", slug="a")
    assert (page["body"], page["title"], page["tags"]) == ("# A\n## S\nnewer\n", "T", ["x", "y"])
    for wrong in (
        {"operation": "append"},
        {"operation": "rename"},
        {"operation": "replace_text", "find": "x"},
    ):
        with pytest.raises(errors.InvalidInput, match=r"requires|required for"):
            await do(memory, "edit", slug="a", **wrong)
