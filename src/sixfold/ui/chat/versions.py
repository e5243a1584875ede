"""Versions of messages, which are created by edits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sixfold.core.gateway.conversations.chats import ChatVersion


class MessageVersions(NamedTuple):
    """The chats with a version of one message, oldest first, and the number of the shown one, from 1."""

    chats: tuple[str, ...]
    number: int

    @property
    def previous(self) -> str:
        """The chat with the version before, or an empty string."""
        return self.chats[self.number - 2] if self.number > 1 else ""

    @property
    def next(self) -> str:
        """The chat with the version after, or an empty string."""
        return self.chats[self.number] if self.number < len(self.chats) else ""


def by_place(chat_id: str, family: Sequence[ChatVersion]) -> dict[int, MessageVersions]:
    """Return the versions of the messages of a chat by their place, for those that have several.

    A version has the items of its parent up to `shared`, so its own message is at `shared` + 1. It shares
    more with its parent than that does with its own.
    """
    by_id = {version.id: version for version in family}
    versions: dict[int, MessageVersions] = {}
    # The chat itself, then the one that has its first items, and so on.
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
