"""Versions of messages, which are created by edits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sixfold.core.gateway.conversations.chats import ChatVersion


class MessageVersions(NamedTuple):
    """The IDs of chats with a version of one message, oldest first; `number` is the shown version, from 1."""

    chats: tuple[str, ...]
    number: int

    @property
    def previous(self) -> str:
        """The ID of the chat with the previous version, or an empty string."""
        return self.chats[self.number - 2] if self.number > 1 else ""

    @property
    def next(self) -> str:
        """The ID of the chat with the next version, or an empty string."""
        return self.chats[self.number] if self.number < len(self.chats) else ""


def by_place(chat_id: str, family: Sequence[ChatVersion]) -> dict[int, MessageVersions]:
    """Return the versions of those messages of a chat that have several, by position.

    A version contains the items of its parent up to `shared`, and its edited message at `shared` + 1. It
    shares more items with its parent than its parent shares with the next one.
    """
    by_id = {version.id: version for version in family}
    versions: dict[int, MessageVersions] = {}
    # The chat, then its parent, and so on.
    chat, limit = by_id.get(chat_id), None
    while chat is not None:
        for shared in {each.shared for each in family if each.parent == chat.id}:
            if limit is None or shared < limit:
                versions[shared + 1] = _versions(family, chat.id, shared, chat.id)
        parent = by_id.get(chat.parent)
        if parent is not None and (limit is None or chat.shared < limit):
            limit = chat.shared
            versions[limit + 1] = _versions(family, parent.id, limit, chat.id)
        chat = parent
    return versions


def _versions(family: Sequence[ChatVersion], parent: str, shared: int, chat_id: str) -> MessageVersions:
    children = [each.id for each in family if each.parent == parent and each.shared == shared]
    chats = (parent, *children)
    return MessageVersions(chats, chats.index(chat_id) + 1)
