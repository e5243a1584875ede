"""Inputs that a model does not have: they are ignored, and each response and the record name them."""

from __future__ import annotations

from typing import Any

import pytest

from sixfold.core.catalog import unknown_names
from sixfold.core.catalog.inputs import Descriptor
from tests.api.app_fixture import AppFixture
from tests.api.test_pages import signed_in

HEADER = "x-sixfold-ignored-inputs"
RUN = "/api/containers/run"
PREDICTIONS = "/api/containers/predictions"
MISSPELLED = {"prompt": "a fox", "widht": 64, "height": 64, "guidance": 2}
IGNORED = [
    {"input": "widht", "message": "ra2 does not have the input widht: did you mean width?"},
    {"input": "guidance", "message": "ra2 does not have the input guidance"},
]


async def post(app: AppFixture, path: str, body: Any) -> Any:
    return await app.client.post(path, json=body, headers=app.bearer)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (RUN, {"model": "ra2", "input": MISSPELLED}),
        (RUN, {"model": "ra2", "input": MISSPELLED, "wait": 0}),
        ("/api/containers/ra2/queue/join", {"input": MISSPELLED}),
        ("/api/containers/ra2/quote", {"input": MISSPELLED}),
        ("/api/service", {"service": "ra2", **MISSPELLED}),
        ("/api/service", {"service": "ra2", "async": True, **MISSPELLED}),
    ],
)
async def test_responses_name_the_ignored_inputs(app: AppFixture, path: str, body: Any) -> None:
    response = await post(app, path, body)
    assert response.status_code in (200, 202), response.text
    assert response.headers[HEADER] == "widht, guidance"
    assert response.json()["ignored_inputs"] == IGNORED


async def test_record_names_the_ignored_inputs(app: AppFixture) -> None:
    prediction_id = (await post(app, RUN, {"model": "ra2", "input": MISSPELLED, "wait": 0})).json()["id"]
    record = await app.client.get(f"{PREDICTIONS}/{prediction_id}", headers=app.bearer)
    assert (record.json()["ignored_inputs"], record.headers[HEADER]) == (IGNORED, "widht, guidance")
    page = (await app.client.get(PREDICTIONS, headers=app.bearer)).json()["predictions"]
    assert page[0]["ignored_inputs"] == IGNORED


async def test_page_of_a_prediction_names_the_ignored_inputs(app: AppFixture) -> None:
    prediction_id = (await post(app, RUN, {"model": "ra2", "input": MISSPELLED})).json()["id"]
    await signed_in(app)
    page = (await app.client.get(f"/predictions/{prediction_id}")).text
    assert all(each["message"] in page for each in IGNORED)


async def test_workflow_run_names_the_ignored_inputs(app: AppFixture) -> None:
    body = {"input": {"text": "hello", "txt": "x"}}
    response = await post(app, "/api/graph/spaces/api-contract/run", body)
    assert (response.status_code, response.headers[HEADER]) == (200, "txt"), response.text
    (ignored,) = response.json()["ignored_inputs"]
    assert ignored["message"].endswith("does not have the input txt: did you mean text?")


async def test_known_inputs_and_aliases_are_not_named(app: AppFixture) -> None:
    body = {"service": "tts", "text": "hello", "speed": 1, "async": True}
    response = await post(app, "/api/service", body)
    assert response.status_code == 202, response.text
    assert HEADER not in response.headers
    assert "ignored_inputs" not in response.json()


async def test_area_a_ignores_additional_fields(app: AppFixture) -> None:
    body = {"api_key": app.key, "prompt": "a fox", "colour": "red"}
    response = await app.client.post("/api/ra1-art-generator", json=body)
    assert response.status_code == 200, response.text
    assert "ignored_inputs" not in response.json()


def test_number_and_length_of_ignored_names_are_limited() -> None:
    values = {f"{number}{'x' * 200}": 1 for number in range(100_000)}
    ignored = unknown_names.ignored_inputs((Descriptor("prompt", "string"),), {"Promt": "", **values})
    assert len(ignored) == 20
    assert ignored["Promt"] == "prompt"
    assert max(map(len, ignored)) == 100
    assert not unknown_names.ignored_inputs((Descriptor("a", "string", aliases=("b",)),), {"b": ""})


@pytest.mark.parametrize("name", ["größe", "\u0000", "a, b", "\U0001f600", "x\r\ny: z"])
async def test_header_encodes_every_name(app: AppFixture, name: str) -> None:
    response = await post(app, RUN, {"model": "ra2", "input": {"prompt": "a fox", name: 1}})
    assert response.status_code == 200, response.text
    assert response.headers[HEADER].isascii()
    assert "," not in response.headers[HEADER]
