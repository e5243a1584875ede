"""Characters and posts: published with a key, public, without other data of the account."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from PIL import Image

from sixfold.core import gallery
from sixfold.core.accounts.keys import KeyLimits
from tests.api.app_fixture import AppFixture
from tests.fakes import fault_server
from tests.harness import image_files


def png(color: str = "red") -> bytes:
    return image_files.encode(Image.new("RGB", (12, 8), color))


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def uri(data: bytes, content_type: str) -> str:
    return f"data:{content_type};base64,{base64_of(data)}"


VIDEO_BYTES = fault_server.video(16, 4)


async def character(app: AppFixture, **more: Any) -> Any:
    """Return the response to a valid `create-ai`, with changes."""
    return await app.client.post("/api/create-ai", json={"api_key": app.key, "name": "Luna", **more})


async def post(app: AppFixture, **more: Any) -> Any:
    """Return the response to a valid `create-post`, with changes."""
    body = {"api_key": app.key, "text": "hello", "media_bytes": base64_of(png()), **more}
    return await app.client.post("/api/create-post", json=body)


async def list_page(app: AppFixture, name: str, **query: Any) -> dict[str, Any]:
    """Return a part of a list, requested without a key."""
    response = await app.visitor("203.0.113.9").get(f"/api/{name}", params=query)
    assert response.status_code == 200
    return response.json()


async def test_character_is_created_listed_and_free(any_database_app: AppFixture) -> None:
    app = any_database_app
    body = (await character(app, description="A fox", greeting="Hi!", avatar_bytes=base64_of(png()))).json()
    assert set(body) == {"id", "url_name", "avatar_file_name", "uploaded_via_api"}
    assert (body["url_name"], body["uploaded_via_api"]) == ("luna", True)
    (row,) = (await list_page(app, "characters"))["characters"]
    assert {key: row[key] for key in ("id", "url_name", "name", "description", "greeting")} == {
        "id": body["id"],
        "url_name": "luna",
        "name": "Luna",
        "description": "A fox",
        "greeting": "Hi!",
    }
    assert row["avatar_url"].endswith(body["avatar_file_name"])
    file = await app.client.get(row["avatar_url"])
    assert (file.content, file.headers["content-type"]) == (png(), "image/png")
    assert await app.balance() == ("5.00", "0.00")


async def test_post_is_created_from_url_base64_and_form(any_database_app: AppFixture) -> None:
    app = any_database_app
    image = (await app.client.post("/api/ra1", json={"prompt": "x"}, headers=app.bearer)).json()
    by_url = await post(app, media_bytes=None, media_url=image["image_url"])
    by_bytes = await post(app, tags="Foxes, #Snow ,foxes")
    form = {"api_key": app.key, "text": "a form", "tags": "snow"}
    by_form = await app.client.post("/api/create-post", data=form, files={"media": ("x.txt", png("blue"))})
    video = await post(app, media_bytes=uri(VIDEO_BYTES, "video/mp4"), tags=["film"])
    responses = [by_url, by_bytes, by_form, video]
    assert [response.status_code for response in responses] == [200] * 4
    results = [response.json() for response in responses]
    assert all(body["id"] == body["post_id"] and body["uploaded_via_api"] is True for body in results)
    [author] = {body["author_user_id"] for body in results}
    assert re.fullmatch("user_[0-9a-f]{32}", author)
    result = (await list_page(app, "posts"))["posts"]
    assert {row["id"] for row in result} == {body["id"] for body in results}
    assert {row["author_user_id"] for row in result} == {author}
    by_id = {row["id"]: row for row in result}
    assert by_id[results[1]["id"]]["tags"] == ["foxes", "snow"]
    assert by_id[results[3]["id"]]["content_type"] == "video/mp4"
    tagged = (await list_page(app, "posts", tag="SNOW"))["posts"]
    assert {row["id"] for row in tagged} == {results[1]["id"], results[2]["id"]}
    assert (await app.client.get(results[2]["media_url"])).content == png("blue")


@pytest.mark.parametrize("sent", [["Foxes", "snow"], "Foxes,snow", '["Foxes", "snow"]', ' ["Foxes","snow"] '])
async def test_form_sends_tags_repeated_or_as_one_text(app: AppFixture, sent: str | list[str]) -> None:
    parts = {"api_key": app.key, "tags": sent}
    fields = {**parts, "media_bytes": base64_of(png("green"))}
    by_fields = await app.client.post("/api/create-post", data=fields)
    by_parts = await app.client.post("/api/create-post", data=parts, files={"media": ("x", png("blue"))})
    assert (by_fields.status_code, by_parts.status_code) == (200, 200)
    assert [row["tags"] for row in (await list_page(app, "posts"))["posts"]] == [["foxes", "snow"]] * 2


async def test_form_tags_that_only_begin_as_json_are_text(app: AppFixture) -> None:
    form = {"api_key": app.key, "tags": "[wip, fox", "media_bytes": base64_of(png())}
    assert (await app.client.post("/api/create-post", data=form)).status_code == 200
    form["tags"] = "[5]"
    response = await app.client.post("/api/create-post", data=form)
    assert response.json()["error"].startswith("Invalid tags: it must be a list of strings")
    assert [row["tags"] for row in (await list_page(app, "posts"))["posts"]] == [["[wip", "fox"]]


async def test_avatar_may_be_a_file_of_a_form(app: AppFixture) -> None:
    data = {"api_key": app.key, "name": "Orion"}
    file = ("a.png", png(), "text/html")
    for part in ("avatar", "avatar_bytes"):
        body = (await app.client.post("/api/create-ai", data=data, files={part: file})).json()
        assert body["avatar_file_name"].endswith(".png"), part
    both = {"avatar": file, "avatar_bytes": file}
    response = await app.client.post("/api/create-ai", data=data, files=both)
    assert response.json()["error"].startswith("Invalid avatar: only one of avatar_url, avatar_bytes")
    bare = (await character(app)).json()
    assert bare["avatar_file_name"] is None


async def test_every_character_has_a_unique_url_name(app: AppFixture) -> None:
    names = ["Luna", "luna!", "LUNA", "Ünïcødé", "...", "x" * 80]
    results = [(await character(app, name=name)).json()["url_name"] for name in names]
    assert len(set(results)) == len(names)
    assert all(name.isascii() and " " not in name and len(name) <= 64 for name in results)
    assert results[4].startswith("character")


async def test_url_names_are_transliterated(app: AppFixture) -> None:
    names = ["月", "Аня", "さくら 2", "Łukasz Ærø", "🐱"]
    results = [(await character(app, name=name)).json()["url_name"] for name in names]
    assert results == ["yue", "anya", "sakura-2", "lukasz-aero", "cat"]


async def test_lists_are_paged_by_cursor(app: AppFixture) -> None:
    results = {(await character(app, name=f"n{number}")).json()["id"] for number in range(7)}
    ids: list[str] = []
    cursor: str | None = None
    while True:
        part = await list_page(app, "characters", limit=3, **({"cursor": cursor} if cursor else {}))
        ids += [row["id"] for row in part["characters"]]
        cursor = part["next_cursor"]
        if cursor is None:
            break
    assert len(ids) == 7
    assert set(ids) == results
    assert ids == sorted(ids, reverse=True)


CHARACTER_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"name": None}, "name"),
    ({"name": "  "}, "name"),
    ({"name": "x" * 81}, "name"),
    ({"name": 5}, "name"),
    ({"description": "x" * 2001}, "description"),
    ({"greeting": "x" * 501}, "greeting"),
    ({"avatar_bytes": "no base64!"}, "avatar_bytes"),
    ({"avatar_bytes": 5}, "avatar_bytes"),
    ({"avatar_bytes": "data:image/png,AAAA"}, "avatar_bytes"),
    ({"avatar_bytes": base64_of(b"<svg onload='x'/>")}, "avatar_bytes"),
    ({"avatar_bytes": base64_of(VIDEO_BYTES)}, "avatar_bytes"),
    ({"avatar_bytes": base64_of(png()[:20])}, "avatar_bytes"),
    ({"avatar_bytes": base64_of(png()[:-6])}, "avatar_bytes"),
    ({"avatar_url": "http://127.0.0.1/x.png"}, "avatar_url"),
    ({"avatar_url": "ftp://example.com/x"}, "avatar_url"),
    ({"avatar_url": 7}, "avatar_url"),
    ({"avatar_url": "blob_none"}, "avatar_url"),
    ({"avatar_url": "data:,x", "avatar_bytes": base64_of(png())}, "avatar"),
]


@pytest.mark.parametrize(("change", "name"), CHARACTER_REFUSALS)
async def test_a_refused_character_names_its_parameter(
    app: AppFixture, change: dict[str, Any], name: str
) -> None:
    response = await character(app, **change)
    assert response.status_code == 400, response.text
    assert set(response.json()) == {"error", "status"}
    assert response.json()["error"].startswith(f"Invalid {name}")
    assert (await list_page(app, "characters"))["characters"] == []


POST_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"media_bytes": None}, "media"),
    ({"media_bytes": ""}, "media"),
    ({"media_url": "data:,x"}, "media"),
    ({"text": "x" * 2001}, "text"),
    ({"text": "\ud800"}, "text"),
    ({"tags": ["x"] * 21}, "tags"),
    ({"tags": ["x" * 41]}, "tags"),
    ({"tags": [5]}, "tags"),
    ({"tags": {"a": 1}}, "tags"),
    ({"media_bytes": base64_of(b"<html>")}, "media_bytes"),
    ({"media_bytes": base64_of(b"#EXTM3U\nfile:///etc/passwd")}, "media_bytes"),
    ({"media_bytes": base64_of(b"%PDF-1.4")}, "media_bytes"),
    ({"media_bytes": base64_of(png()[:-6])}, "media_bytes"),
    ({"media_bytes": base64_of(VIDEO_BYTES[:-6])}, "media_bytes"),
    ({"media_bytes": None, "media_url": uri(png()[:-6], "image/png")}, "media_url"),
    ({"media_bytes": None, "media_url": uri(VIDEO_BYTES[: len(VIDEO_BYTES) // 2], "video/mp4")}, "media_url"),
    ({"media_bytes": base64_of(png()[:16] + (60_000).to_bytes(4, "big") * 2 + png()[24:])}, "media_bytes"),
]


@pytest.mark.parametrize(("change", "name"), POST_REFUSALS)
async def test_a_refused_post_names_its_parameter(app: AppFixture, change: dict[str, Any], name: str) -> None:
    body = {"api_key": app.key, "text": "hello", "media_bytes": base64_of(png()), **change}
    raw = json.dumps(body).encode()
    response = await app.client.post("/api/create-post", content=raw)
    assert response.status_code == 400, response.text
    if "\\ud800" not in raw.decode():
        assert response.json()["error"].startswith(f"Invalid {name}")
    assert (await list_page(app, "posts"))["posts"] == []


async def test_truncated_form_file_is_refused(app: AppFixture) -> None:
    for data in (png()[:-6], VIDEO_BYTES[:-6]):
        form = {"api_key": app.key, "text": "a form"}
        response = await app.client.post("/api/create-post", data=form, files={"media": ("x", data)})
        assert response.status_code == 400
        assert response.json()["error"].endswith("truncated or damaged.")


async def test_error_message_begins_with_the_parameter(app: AppFixture) -> None:
    assert (await post(app, media_bytes=None)).json() == {
        "error": "Invalid media: one of media_url, media_bytes or a file is required",
        "status": 400,
    }
    response = await app.client.get("/api/posts", params={"limit": 0})
    assert response.json() == {"error": "Invalid limit: it must be from 1 to 100", "status": 400}


async def test_key_is_checked_first_and_limited_keys_are_403(app: AppFixture) -> None:
    reader = await app.limited_key(KeyLimits(read_only=True))
    painter = await app.limited_key(KeyLimits(services=("ra1",)))
    for key, status in ((None, 401), ("sf_no", 401), (5, 401), (reader, 403), (painter, 403)):
        for path in ("/api/create-ai", "/api/create-post"):
            response = await app.client.post(path, json={"api_key": key})
            assert response.status_code == status
    broken = await app.client.post("/api/create-ai", content=b"{")
    assert (broken.status_code, broken.json()["error"]) == (400, "Invalid JSON body")


async def test_a_repeated_request_publishes_once(app: AppFixture) -> None:
    headers = {"Idempotency-Key": "once"}
    body = {"api_key": app.key, "name": "Luna"}
    first = await app.client.post("/api/create-ai", json=body, headers=headers)
    second_response = await app.client.post("/api/create-ai", json=body, headers=headers)
    assert first.json() == second_response.json()
    assert len((await list_page(app, "characters"))["characters"]) == 1


async def test_gallery_has_no_unpublished_files_or_addresses(app: AppFixture) -> None:
    secret = (await app.client.post("/api/uploads", content=png("green"), headers=app.bearer)).json()
    image = (await app.client.post("/api/ra1", json={"prompt": "x"}, headers=app.bearer)).json()
    body = (await post(app, media_bytes=None, media_url=secret["url"])).json()
    text = (await app.client.get("/api/posts")).text + (await app.client.get("/api/characters")).text
    for private in (secret["url"].rpartition("/")[2], secret["id"], image["image_url"].rpartition("/")[2]):
        assert private not in text
    assert "ada@example.com" not in text
    assert (await app.client.get(body["media_url"])).content == png("green")
    stolen = await app.client.post(
        "/api/create-post", json={"api_key": app.other, "text": "", "media_url": secret["id"]}
    )
    assert stolen.status_code == 400


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "101"},
        {"limit": "x"},
        {"limit": "٣"},
        {"cursor": "x" * 65},
        {"cursor": "nope"},
        {"cursor": "\0"},
    ],
)
async def test_invalid_limit_or_cursor_is_400(app: AppFixture, query: dict[str, str]) -> None:
    for name in ("characters", "posts"):
        response = await app.client.get(f"/api/{name}", params=query)
        assert (response.status_code, set(response.json())) == (400, {"error", "status"})


async def test_characters_and_posts_of_an_account_are_limited(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gallery, "MAX_CHARACTERS", 1)
    monkeypatch.setattr(gallery, "MAX_POSTS", 1)
    assert [(await character(app)).status_code for _ in range(2)] == [200, 403]
    assert [(await post(app)).status_code for _ in range(2)] == [200, 403]
