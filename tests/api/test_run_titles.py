"""Titles of runs: a text of the inputs, or the name of the input file."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import encode_json
from sixfold.core.predictions.history import titles
from sixfold.core.predictions.history.entries import HistoryFilter, RunHistory
from tests.api.app_fixture import AppFixture
from tests.api.test_shares import run

MEDIA = "http://127.0.0.1:8600/media/"


async def upload(app: AppFixture, name: str) -> str:
    """Upload an image and return its URL."""
    content = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(content, "PNG")
    files = {"file": (name, content.getvalue(), "image/png")}
    return (await app.client.post("/api/uploads", files=files, headers=app.bearer)).json()["url"]


async def test_the_input_file_names_a_run(any_database_app: AppFixture) -> None:
    app = any_database_app
    photo, windows = await upload(app, "harbour.png"), await upload(app, "C:\\photos\\old  pier.png")
    painted = (await run(app, "a red fox"))["output"]["url"]
    inputs = {
        "upload": f'{{"image_url":"{photo}"}}',
        "path": f'{{"image_url":"{windows}","scale":2}}',
        "painted": f'{{"image_url":"{painted}"}}',
        "outside": '{"image_url":"https://example.com/a/night%20sky.jpg?x=1#y"}',
        "no name": '{"image_url":"https://example.com/images/"}',
        "unknown": f'{{"image_url":"{MEDIA}{"A" * 32}.png"}}',
        "data": '{"series":[1,2,3]}',
    }
    found = await titles.of_files(app.database, app.account.id, inputs)
    assert found == {
        "upload": "harbour.png",
        "path": "old pier.png",
        "painted": "a red fox",
        "outside": "night sky.jpg",
    }
    assert await titles.of_files(app.database, "another account", {"upload": inputs["upload"]}) == {}


@pytest.mark.parametrize(
    ("inputs", "title"),
    [
        ({"prompt": " a  fox ", "style": "two words"}, "a fox"),
        ({"texts": ["a lighthouse", "a boat"]}, "a lighthouse"),
        ({"texts": []}, ""),
        ({"style": "voxel48"}, ""),
        ({"style": "calm piano", "lyrics": "la"}, "calm piano"),
        ({"style": "jazz", "lyrics": "la la"}, "la la"),
        ({"prompt": 3, "input": "hello"}, "hello"),
    ],
)
def test_a_text_of_the_inputs_is_the_title(inputs: dict[str, object], title: str) -> None:
    assert titles.title_of(inputs) == title
    assert titles.text_of(encode_json(inputs)) == title


async def test_search_of_the_history_finds_names_of_files(any_database_app: AppFixture) -> None:
    app = any_database_app
    photo = await upload(app, "Harbour at night.png")
    body = {"model": "ra2", "input": {"prompt": "a red fox", "image_url": photo}}
    untitled = {"model": "remove-background", "input": {"image_url": photo}}
    for each in (untitled, body):
        response = await app.client.post("/api/containers/run", json=each, headers=app.bearer)
        assert response.status_code == 200, response.text
    history, tenant = RunHistory(app.database), Tenant(app.account.id)

    async def found(*words: str) -> list[str]:
        return [each.title for each in (await history.page(tenant, HistoryFilter(words), 10)).entries]

    assert await found("HARBOUR", "night") == ["Harbour at night.png"]
    assert await found("harbour", "fox") == []
    assert await found("fox") == ["a red fox"]
