"""The tool `file_search` of responses: passages for the model, citations for the caller."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from sixfold.core.gateway.routing import ModelRouter
from tests.api.gateway import Gateway
from tests.api.test_vector_stores import upload, wait_for_files

# The fake model repeats the output of the last tool, so it cites the first passage and an unknown one.
CITES: list[Any] = [
    {"role": "user", "content": "Which animal is extinct?"},
    {"type": "function_call", "call_id": "c1", "name": "say", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "The quagga [1], not [7]."},
]


async def fill(gateway: Gateway) -> tuple[str, str]:
    """A store with a file, and the id of the file."""
    client = gateway.openai()
    file = await upload(client, data=b"The quagga is extinct.")
    store = await client.vector_stores.create(file_ids=[file])
    await wait_for_files(client, store.id)
    return store.id, file


def tool(*stores: str, **more: Any) -> Any:
    return {"type": "file_search", "vector_store_ids": list(stores), **more}


@pytest.mark.parametrize("model", ["acme/small", "anth/small"])
async def test_model_gets_the_passages_and_is_cited(gateway: Gateway, model: str) -> None:
    store, file = await fill(gateway)
    answer = await gateway.openai().responses.create(
        model=model,
        instructions="Be brief.",
        input=CITES if model.startswith("acme") else "Which animal is extinct?",
        tools=[tool(store)],
        include=["file_search_call.results"],
    )
    server = gateway.acme if model.startswith("acme") else gateway.anth
    sent = json.dumps(server.requests[-1].document)
    assert "Be brief." in sent
    assert "The quagga is extinct." in sent
    assert '"tools"' not in sent
    search, message = answer.output[0], answer.output[-1]
    assert search.type == "file_search_call"
    assert (search.status, search.queries) == ("completed", ["Which animal is extinct?"])
    assert search.results
    assert (search.results[0].file_id, search.results[0].text) == (file, "The quagga is extinct.")
    assert answer.tools[0].type == "file_search"
    assert message.type == "message"
    if model.startswith("acme"):
        part: Any = message.content[0]
        assert [(each.type, each.file_id, each.filename) for each in part.annotations] == [
            ("file_citation", file, "birds.txt")
        ]
        assert part.text[part.annotations[0].index :].startswith("[1]")


async def test_stream_reports_the_search_and_the_citation(gateway: Gateway) -> None:
    store, file = await fill(gateway)
    stream = await gateway.openai().responses.create(
        model="acme/small", input=CITES, tools=[tool(store)], stream=True
    )
    events = [event async for event in stream]
    kinds = [event.type for event in events]
    assert kinds[:7] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.file_search_call.in_progress",
        "response.file_search_call.searching",
        "response.file_search_call.completed",
        "response.output_item.done",
    ]
    noted: Any = next(event for event in events if event.type == "response.output_text.annotation.added")
    assert noted.annotation.file_id == file
    assert [event.sequence_number for event in events] == list(range(len(events)))
    end: Any = events[-1]
    assert end.response.output[0].results is None
    assert len(end.response.output[-1].content[0].annotations) == 1


async def test_filters_limits_and_forced_choice_apply(gateway: Gateway) -> None:
    store, _ = await fill(gateway)
    keep = {"type": "eq", "key": "of", "value": "nobody"}
    answer = await gateway.openai().responses.create(
        model="acme/small",
        input="Which animal is extinct?",
        tools=[tool(store, filters=keep, max_num_results=3)],
        tool_choice={"type": "file_search"},
    )
    assert answer.output[0].type == "file_search_call"
    assert "found nothing" in json.dumps(gateway.acme.requests[-1].document)


async def test_response_is_stored_and_continued(gateway: Gateway) -> None:
    store, _ = await fill(gateway)
    client = gateway.openai()
    first = await client.responses.create(
        model="acme/small", input="Which animal is extinct?", tools=[tool(store)], store=True
    )
    remaining = await client.responses.retrieve(first.id)
    assert [item.type for item in remaining.output] == ["file_search_call", "message"]
    second_response = await client.responses.create(
        model="acme/small", input="say 2 words", previous_response_id=first.id, tools=[tool(store)]
    )
    assert second_response.output_text == "word word"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"vector_store_ids": []}, "1 to 10 ids"),
        ({"vector_store_ids": 3}, "must be an array"),
        ({"vector_store_ids": ["vs_x"], "max_num_results": 0}, None),
        ({"vector_store_ids": ["vs_x"]}, "No vector store found"),
    ],
)
async def test_invalid_tool_is_refused_and_free(
    gateway: Gateway, row: dict[str, Any], words: str | None
) -> None:
    before = await gateway.app.balance()
    tools: Any = [{"type": "file_search", **row}]
    with pytest.raises(openai.APIStatusError) as excinfo:
        await gateway.openai().responses.create(model="acme/small", input="x", tools=tools)
    assert excinfo.value.status_code in (400, 404)
    assert (words or "") in excinfo.value.message
    assert (await gateway.app.balance(), gateway.acme.requests) == (before, [])


async def test_store_of_another_account_is_not_searched(gateway: Gateway) -> None:
    store, _ = await fill(gateway)
    with pytest.raises(openai.NotFoundError):
        await gateway.openai(key=gateway.app.other).responses.create(
            model="acme/small", input="quagga", tools=[tool(store)]
        )


async def test_store_of_the_provider_is_left_to_it(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelRouter, "reads_documents", lambda *_: True)
    # Its objects have owners too, and this one has none here.
    with pytest.raises(openai.NotFoundError, match="Object with id 'vs_theirs' not found"):
        await gateway.openai().responses.create(
            model="acme/small", input="say 2 words", tools=[tool("vs_theirs")]
        )
