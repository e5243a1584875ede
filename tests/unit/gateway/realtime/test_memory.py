"""The memory of realtime sessions: what counts, against which limits, and until when."""

from __future__ import annotations

import gc

import pytest

from sixfold import errors
from sixfold.core.gateway.realtime import memory
from sixfold.core.gateway.realtime.conversation import RealtimeConversation
from sixfold.core.gateway.realtime.items import MessageItem, TextContent, stored_bytes
from sixfold.core.gateway.realtime.memory import RealtimeServerMemory

KIB = 1024


def message(item_id: str, text: str) -> MessageItem:
    return MessageItem(item_id, "user", [TextContent(text)])


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAX_SESSION_BYTES", 60 * KIB)
    monkeypatch.setattr(memory, "MAX_ACCOUNT_BYTES", 100 * KIB)
    monkeypatch.setattr(memory, "MAX_SERVER_BYTES", 150 * KIB)


def test_sessions_of_an_account_share_a_limit() -> None:
    server = RealtimeServerMemory()
    first, second = server.of("a"), server.of("a")
    assert first is second
    first.audio().take(60 * KIB)
    with pytest.raises(errors.TooManyRequests, match="of an account"):
        second.audio().take(60 * KIB)
    server.of("b").audio().take(60 * KIB)


def test_accounts_share_the_limit_of_the_server() -> None:
    server = RealtimeServerMemory()
    first, second = server.of("a"), server.of("b")
    first.take(100 * KIB)
    with pytest.raises(errors.TooManyRequests, match="of this server"):
        second.take(60 * KIB)
    assert second.size == 0


def test_items_count_until_they_are_deleted() -> None:
    account = RealtimeServerMemory().of("a")
    items = RealtimeConversation(account)
    items.add(message("a", "x" * 40 * KIB))
    items.add(message("b", "x" * 40 * KIB))
    with pytest.raises(errors.TooManyRequests):
        items.add(message("c", "x" * 40 * KIB))
    items.remove("a")
    items.add(message("c", "x" * 40 * KIB))
    items.clear()
    assert account.size == 0


def test_items_that_have_grown_can_be_deleted() -> None:
    account = RealtimeServerMemory().of("a")
    items = RealtimeConversation(account)
    answer = message("a", "x" * 40 * KIB)
    items.add(answer)
    items.add(message("b", ""))
    answer.parts[0] = TextContent("x" * 200 * KIB)
    items.remove("b")
    items.remove("a")
    assert account.size == 0


def test_one_emoji_quadruples_the_memory_of_its_text() -> None:
    assert stored_bytes([message("a", "x" * 1000 + "\N{GRINNING FACE}")]) > 4 * 1000


def test_memory_of_an_account_without_sessions_is_forgotten() -> None:
    server = RealtimeServerMemory()
    session = server.of("a")
    assert len(server._accounts) == 1
    del session
    gc.collect()
    assert len(server._accounts) == 0
