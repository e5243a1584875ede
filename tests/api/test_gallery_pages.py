"""Publishing a result on the pages: the author's name, unlisted posts, remixes and deletion."""

from __future__ import annotations

import asyncio
import base64
import io
import threading
from typing import Any, Literal

import pytest
from PIL import Image

from sixfold.core import gallery
from sixfold.core.accounts import accounts
from sixfold.core.media import private_copies
from sixfold.core.media.private_copies import PrivateCopies
from sixfold.core.predictions import refunds
from sixfold.core.provenance import embed, manifest
from sixfold.core.provenance.manifest import Manifest
from tests.api.app_fixture import AppFixture
from tests.api.test_pages import signed_in
from tests.api.test_shares import anonymous_visitor, run
from tests.harness import image_files
from tests.harness.waiting import wait_until


async def publish(app: AppFixture, csrf: str, prediction_id: str, **more: str) -> Any:
    form = {"csrf": csrf, "run": prediction_id, "name": "ada", "text": "My harbour", "tags": "Sea, #night"}
    return await app.client.post("/gallery/publish", data={**form, **more})


async def test_published_result_can_be_remixed_by_others(any_database_app: AppFixture) -> None:
    app, visitor = any_database_app, anonymous_visitor(any_database_app)
    result, csrf = await run(app, "a quiet harbour", seed=7), await signed_in(app)
    form = (await app.client.get(f"/gallery/publish?run={result['id']}")).text
    assert "a quiet harbour" in form
    assert f'src="/media/{result["output"]["url"].rpartition("/")[2]}?w=320"' in form
    response = await publish(app, csrf, result["id"], inputs="on")
    assert response.status_code == 303, response.text
    where = response.headers["location"]
    page = (await visitor.get(where)).text
    assert "By <b>ada</b>" in page
    assert "ada@example.com" not in page
    assert 'property="og:image"' in page
    html = (await visitor.get("/gallery?tag=sea")).text
    assert where in html
    assert "By <b>ada</b>" in html
    (row,) = (await visitor.get("/api/posts")).json()["posts"]
    assert (row["author_name"], row["tags"]) == ("ada", ["sea", "night"])
    remix = await visitor.get(f"/catalog/ra2?from={row['id']}")
    assert "a quiet harbour" in remix.text
    assert (await visitor.get(f"/catalog/anime?from={row['id']}")).status_code == 404
    assert (await visitor.get("/catalog/ra2?from=post_none")).status_code == 404
    await app.database.write(refunds.refund(result["id"], "test"))
    assert (await visitor.get(where)).status_code == 404


async def test_an_unlisted_post_is_found_by_its_address_only(any_database_app: AppFixture) -> None:
    app, visitor = any_database_app, anonymous_visitor(any_database_app)
    result, csrf = await run(app, "a secret prompt"), await signed_in(app)
    where = (await publish(app, csrf, result["id"], unlisted="on")).headers["location"]
    page = await visitor.get(where)
    assert (page.status_code, page.headers["x-robots-tag"]) == (200, "noindex, nofollow")
    assert "secret prompt" not in page.text, "the inputs were not published"
    assert "Remix" not in page.text
    for path in ("/gallery", "/gallery?tag=sea", "/api/posts", "/api/posts?tag=sea"):
        assert where.rpartition("/")[2] not in (await visitor.get(path)).text
    other = await app.database.read(accounts.by_email("ben@example.com"))
    ben = await signed_in(app, other)
    assert (await app.client.post(f"{where}/delete", data={"csrf": ben})).status_code == 404
    ada = await signed_in(app)
    assert (await app.client.post(f"{where}/delete", data={"csrf": ada})).status_code == 303
    assert (await visitor.get(where)).status_code == 404


async def test_author_name_belongs_to_one_account(any_database_app: AppFixture) -> None:
    app = any_database_app
    result, csrf = await run(app), await signed_in(app)
    for name in ("", "a", "A b", "x" * 31, "<b>"):
        assert (await publish(app, csrf, result["id"], name=name)).status_code == 400, name
    assert (await publish(app, csrf, result["id"], text="x" * 2001)).status_code == 400
    assert (
        await publish(app, csrf, result["id"], tags=",".join(f"t{n}" for n in range(21)))
    ).status_code == 400
    assert (await publish(app, csrf, result["id"])).status_code == 303
    assert 'value="ada"' in (await app.client.get(f"/gallery/publish?run={result['id']}")).text
    other = await app.database.read(accounts.by_email("ben@example.com"))
    ben = await signed_in(app, other)
    assert (await publish(app, ben, result["id"])).status_code == 404, "a run of another account"
    headers = {"Authorization": f"Bearer {app.other}"}
    body = {"model": "ra2", "input": {"prompt": "his", "width": 64, "height": 64}}
    bens_run = (await app.client.post("/api/containers/run", json=body, headers=headers)).json()
    response = await publish(app, ben, bens_run["id"])
    assert (response.status_code, "belongs to another account" in response.text) == (409, True)
    assert (await publish(app, ben, bens_run["id"], name="ben")).status_code == 303


async def test_post_without_the_prompt_has_none_in_its_file(any_database_app: AppFixture) -> None:
    app = any_database_app
    results = [await run(app, f"a secret prompt {seed}", seed=seed) for seed in (7, 8)]
    csrf = await signed_in(app)
    paths: list[str] = []
    for result in results:
        where = (await publish(app, csrf, result["id"])).headers["location"]
        post = await app.database.read(gallery.get_post(where.rpartition("/")[2]))
        assert manifest_of(await content(app, result["output"]["url"])).inputs["prompt"]
        data = await content(app, f"/media/{post.media}")
        found = manifest_of(data)
        assert b"secret prompt" not in data
        assert (found.model, found.inputs, found.seed) == ("ra2", {}, None)
        assert app.server.signer.read(str(embed.extract(data))).valid
        paths.append(f"/media/{post.media}")
    await app.database.write(refunds.refund(results[0]["id"], "test"))
    assert [(await app.client.get(path)).status_code for path in paths] == [404, 200]
    assert len((await app.client.get("/api/posts")).json()["posts"]) == 1
    assert (await publish(app, csrf, results[1]["id"], inputs="on")).status_code == 303


async def test_files_posted_over_http_have_no_prompt(any_database_app: AppFixture) -> None:
    app = any_database_app
    result = await run(app, "a secret prompt")
    data = await content(app, result["output"]["url"])
    sources = ({"url": result["output"]["url"]}, {"bytes": base64.b64encode(data).decode()})
    for source in sources:
        post = {f"media_{name}": value for name, value in source.items()}
        response = await app.client.post("/api/create-post", json={"api_key": app.key, "text": "x", **post})
        assert b"secret prompt" not in await content(app, response.json()["media_url"])
    avatar = {"name": "Fox", "avatar_bytes": sources[1]["bytes"]}
    response = await app.client.post("/api/create-ai", json={"api_key": app.key, **avatar})
    name = response.json()["avatar_file_name"]
    assert b"secret prompt" not in await content(app, f"/media/{name}")
    await app.database.write(refunds.refund(result["id"], "test"))
    assert (await app.client.get("/api/posts")).json()["posts"] == []
    assert (await app.client.get("/api/characters")).json()["characters"][0]["avatar_url"] is None
    assert (await app.client.get(f"/media/{name}")).status_code == 404
    response = await app.client.post("/api/create-ai", json={"api_key": app.key, **avatar})
    assert (response.status_code, "was refunded" in response.text) == (409, True)


async def test_copy_of_a_copy_is_withdrawn_with_its_run(any_database_app: AppFixture) -> None:
    app = any_database_app
    result, csrf = await run(app, "a secret prompt"), await signed_in(app)
    where = (await publish(app, csrf, result["id"])).headers["location"]
    first = await app.database.read(gallery.get_post(where.rpartition("/")[2]))
    copy = await content(app, f"/media/{first.media}")
    sources = (
        {"media_url": f"http://127.0.0.1:8600/media/{first.media}"},
        {"media_bytes": base64.b64encode(copy).decode()},
    )
    paths = [f"/media/{first.media}"]
    for source in sources:
        response = await app.client.post("/api/create-post", json={"api_key": app.key, "text": "x", **source})
        paths.append(response.json()["media_url"])
    avatar = {"api_key": app.key, "name": "Fox", "avatar_bytes": sources[1]["media_bytes"]}
    response = await app.client.post("/api/create-ai", json=avatar)
    paths.append(f"/media/{response.json()['avatar_file_name']}")
    await app.database.write(refunds.refund(result["id"], "test"))
    assert (await app.client.get("/api/posts")).json()["posts"] == []
    assert (await app.client.get("/api/characters")).json()["characters"][0]["avatar_url"] is None
    assert [(await app.client.get(path)).status_code for path in paths] == [404] * 4
    response = await app.client.post("/api/create-ai", json=avatar)
    assert (response.status_code, "was refunded" in response.text) == (409, True)


async def test_output_without_valid_manifest_is_published_clean(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = any_database_app
    result, csrf = await run(app, "a secret prompt"), await signed_in(app)
    # As after the loss of the key with which the manifest was signed.
    monkeypatch.setattr(app.server.signer, "_trusted", frozenset[str]())
    where = (await publish(app, csrf, result["id"])).headers["location"]
    post = await app.database.read(gallery.get_post(where.rpartition("/")[2]))
    body = {"api_key": app.key, "text": "x", "media_url": result["output"]["url"]}
    url = (await app.client.post("/api/create-post", json=body)).json()["media_url"]
    for path in (f"/media/{post.media}", url):
        data = await content(app, path)
        assert (b"secret prompt" in data, embed.extract(data)) == (False, None)
    again = await app.client.post("/api/create-post", json={**body, "media_url": url})
    await app.database.write(refunds.refund(result["id"], "test"))
    for path in (f"/media/{post.media}", url, again.json()["media_url"]):
        assert (await app.client.get(path)).status_code == 404


@pytest.mark.parametrize("step", ["_manifest", "rewrite"])
async def test_few_files_are_read_and_copied_at_the_same_time(
    step: str, app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, make, work = private_copies.CONCURRENCY, PrivateCopies.make, getattr(private_copies, step)
    copies, release, lock = set[PrivateCopies](), threading.Event(), threading.Lock()
    active = arrived = 0

    async def recorded(self: PrivateCopies, *arguments: Any, **options: Any) -> Any:
        if self not in copies:
            copies.add(self)
            acquire = self.semaphore.acquire

            async def counted() -> Literal[True]:
                nonlocal arrived
                arrived += 1
                return await acquire()

            monkeypatch.setattr(self.semaphore, "acquire", counted)
        return await make(self, *arguments, **options)

    def blocked(*arguments: Any) -> Any:
        nonlocal active
        with lock:
            active += 1
        release.wait()
        return work(*arguments)

    monkeypatch.setattr(PrivateCopies, "make", recorded)
    monkeypatch.setattr(private_copies, step, blocked)
    result, csrf = await run(app, "a fox"), await signed_in(app)
    post = {"api_key": app.key, "text": "x", "media_url": result["output"]["url"]}
    requests = [app.client.post("/api/create-post", json=post) for _ in range(limit)]
    tasks = [asyncio.ensure_future(each) for each in (*requests, publish(app, csrf, result["id"]))]
    try:
        await wait_until(lambda: arrived > limit or active > limit)
        (one,) = copies
        assert one.semaphore.locked()
        await wait_until(lambda: active >= limit)
        assert (active, arrived) == (limit, limit + 1)
    finally:
        release.set()
    assert [each.status_code for each in await asyncio.gather(*tasks)] == [200] * limit + [303]


async def test_own_photo_is_published_without_its_location(any_database_app: AppFixture) -> None:
    app, exif = any_database_app, Image.Exif()
    exif[0x010E] = "the house of Ada"
    exif.get_ifd(0x8825)[29] = "2026:11:30"

    async def published(data: bytes) -> bytes:
        post = {"api_key": app.key, "media_bytes": base64.b64encode(data).decode()}
        response = await app.client.post("/api/create-post", json=post)
        return await content(app, response.json()["media_url"])

    for kind in ("JPEG", "PNG", "WEBP", "AVIF"):
        photo = image_files.encode(Image.new("RGB", (8, 8)), kind, exif=exif)
        assert b"house of Ada" in photo
        copy = await published(photo)
        assert (b"house of Ada" in copy, b"2026:11:30" in copy) == (False, False), kind
        assert Image.open(io.BytesIO(copy)).size == (8, 8)
        assert await published(copy) == copy, kind


def manifest_of(data: bytes) -> Manifest:
    return manifest.parse(str(embed.extract(data)))[0]


async def content(app: AppFixture, url: str) -> bytes:
    response = await app.client.get(url)
    assert response.status_code == 200
    return response.content
