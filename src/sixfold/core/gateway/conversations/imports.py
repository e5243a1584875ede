"""Import of chats from other applications; a chat that was already imported does not change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Query, Transaction, one
from sixfold.core.gateway.conversations import conversations
from sixfold.core.gateway.conversations.chats import TITLE_CHARS
from sixfold.core.gateway.conversations.conversations import ConversationItem
from sixfold.core.gateway.policy import GatewayPolicy

_encode = msgspec.json.Encoder().encode


class ImportedMessage(msgspec.Struct, frozen=True):
    """A message with its text."""

    role: Literal["user", "assistant"]
    text: str


class ImportedChat(msgspec.Struct, frozen=True):
    """A chat of another application; `source` identifies the application and the chat."""

    source: str
    title: str
    messages: Sequence[ImportedMessage]


def store(policy: GatewayPolicy, tenant: Tenant, chat: ImportedChat) -> Transaction[bool]:
    """Store a chat; return False if it was already imported. Raises `TooLarge` above a quota."""
    chat_id = ids.derived(f"conv_{tenant.account_id.partition('_')[2]}", chat.source)
    if (yield from one("conversation_get", **tenant.row, id=chat_id)) is not None:
        return False
    if len(chat.messages) > policy.conversation_items:
        raise errors.TooLarge(
            f"A chat may have at most {policy.conversation_items} messages (got {len(chat.messages)})"
        )
    items = [_item(ids.derived(chat_id, str(place)), each) for place, each in enumerate(chat.messages)]
    size = sum(item.size for item in items)
    yield from conversations.check_quota(policy, tenant, size, new=True)
    title = " ".join(chat.title.split())[:TITLE_CHARS] or "Chat"
    yield Query("chat_insert", {**tenant.row, "id": chat_id, "title": title, "model": ""})
    yield from conversations.insert(tenant, chat_id, items)
    return True


def _item(seed: str, message: ImportedMessage) -> ConversationItem:
    item_id = f"msg_{seed.partition('_')[2]}"
    part: dict[str, Any] = {"type": "input_text", "text": message.text}
    if message.role == "assistant":
        part |= {"type": "output_text", "annotations": []}
    fields: dict[str, Any] = {
        "id": item_id,
        "type": "message",
        "role": message.role,
        "status": "completed",
        "content": [part],
    }
    return ConversationItem(item_id, _encode(fields).decode())
