"""Pages and shares of chats with large messages show a limited part of them."""

from __future__ import annotations

from typing import Any

import pytest

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.gateway.conversations.chats import ITEM_BYTES, PAGE_BYTES, ChatStore
from tests.api.app_fixture import AppFixture
from tests.api.test_pages import signed_in

# Escaped, each character takes five.
TEXT = "&" * 300_000


async def chat_of(app: AppFixture, *texts: str) -> str:
    """Create a chat with answers over the API; return its id."""
    store = ChatStore(app.database, app.server.gateway_runtime.conversations)
    chat_id = await store.create(Tenant(app.account.id), "Large", "acme/small")
    for text in texts:
        item: dict[str, Any] = {"type": "message", "role": "assistant", "content": text}
        path = f"/v1/conversations/{chat_id}/items"
        response = await app.client.post(path, json={"items": [item]}, headers=app.bearer)
        assert response.status_code == 200, response.text
    return chat_id


@pytest.mark.parametrize("is_shared", [False, True])
async def test_page_of_a_large_chat_is_limited(any_database_app: AppFixture, is_shared: bool) -> None:
    app = any_database_app
    chat_id = await chat_of(app, *(f"{number} {TEXT}" for number in range(12)), "&" * ITEM_BYTES)
    await signed_in(app)
    visitor, path = app.client, f"/chat/{chat_id}"
    if is_shared:
        body = {"kind": "chat", "id": chat_id}
        response = await app.client.post("/api/shares", json=body, headers=app.bearer)
        visitor, path = app.visitor(), response.json()["url"]
    page = await visitor.get(path)
    assert page.status_code == 200
    assert len(page.content) < 11 * PAGE_BYTES
    assert "This message is not shown because it has" in page.text
    assert ">11 &amp;&amp;" in page.text
    assert ">0 &amp;&amp;" not in page.text
    if not is_shared:
        earlier = await visitor.get(path, params={"before": 7})
        assert ">0 &amp;&amp;" in earlier.text
