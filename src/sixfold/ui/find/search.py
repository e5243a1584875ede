"""One search over the models, memory, runs, chats, settings, guides and, for operators, accounts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.accounts.operation import customers
from sixfold.core.gateway.conversations.chats import ChatStore
from sixfold.core.memory.ports import SearchRequest
from sixfold.core.predictions.history.entries import HistoryEntry, HistoryFilter, RunHistory
from sixfold.ui.auth import PageUser
from sixfold.ui.catalog import abilities
from sixfold.ui.catalog.cards import has_card
from sixfold.ui.docs import renderer
from sixfold.ui.docs import repository as docs_repository
from sixfold.ui.find.destinations import DESTINATIONS
from sixfold.web.services import WebServices

MAX_QUERY_CHARS = 100
# Maximum number of entries in a group.
_MAX_ENTRIES = 6
# The titles of this many recently changed chats are searched.
_MAX_CHATS = 200
_MAX_TEXT = 90
# Minimum length of a part of an e-mail address.
_MIN_ADDRESS = 2
_PEOPLE = "/admin/people"


class FindEntry(msgspec.Struct, frozen=True):
    """An entry in the results."""

    title: str
    note: str
    href: str

    @property
    def document(self) -> dict[str, str]:
        """The entry as JSON."""
        return {"title": self.title, "note": self.note, "href": self.href}


class FindGroup(msgspec.Struct, frozen=True):
    """The results of one kind, best first."""

    title: str
    entries: tuple[FindEntry, ...]

    @property
    def document(self) -> dict[str, Any]:
        """The group as JSON."""
        return {"title": self.title, "entries": [entry.document for entry in self.entries]}


class FindSearch:
    """Searches everything that a user may see; an empty query lists pages and recently used items."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._history = RunHistory(services.database)
        self._chats = ChatStore(services.database, services.conversations)

    async def find(self, user: PageUser, query: str) -> list[FindGroup]:
        """Return the groups with results; each reads a limited number of rows."""
        words = abilities.query_words(query)
        memory, runs, chats, models, guides, people = await asyncio.gather(
            self._memory(user, query),
            self._runs(user, query),
            self._chat_entries(user, words),
            self._models(user, words),
            self._guides(words),
            self._people(user, query.strip()),
        )
        pages = ("Go to", self._destinations(user, words))
        own = (("Models", models), ("Memory", memory), ("Runs", runs), ("Chats", chats), ("Guides", guides))
        own = (("People", people), *own)
        groups = (pages, *own) if words else (*own, pages)
        return [FindGroup(title, entries) for title, entries in groups if entries]

    def _is_enabled(self, api: str) -> bool:
        return api in self._services.settings.enabled_apis

    def _destinations(self, user: PageUser, words: Sequence[str]) -> tuple[FindEntry, ...]:
        pages = [
            FindEntry(each.title, "", each.path)
            for each in DESTINATIONS
            if (not each.api or self._is_enabled(each.api))
            and each.is_open_to(user.principal)
            and _matches(f"{each.title} {each.words}", words)
        ]
        return tuple(pages[:_MAX_ENTRIES] if words else pages)

    async def _models(self, user: PageUser, words: Sequence[str]) -> tuple[FindEntry, ...]:
        if not words:
            return ()
        own, _ = await self._services.predictions.custom_models.page(user.account_id)
        models = [*self._services.catalog.models(), *(each.model for each in own)]
        places = {model: at for at, model in enumerate(_table_order())}
        matches = [
            model
            for model in models
            if has_card(model) and abilities.matches(abilities.words_for(model), words)
        ]
        # Models whose title or name contains the words come first.
        matches.sort(
            key=lambda model: (
                not _matches(f"{model.title} {model.name}", words),
                places.get(model.name, len(places)),
            )
        )
        return tuple(
            FindEntry(_cut(model.title), _cut(model.description), f"/catalog/{quote(model.name)}")
            for model in matches[:_MAX_ENTRIES]
        )

    async def _memory(self, user: PageUser, query: str) -> tuple[FindEntry, ...]:
        if not self._is_enabled("memory"):
            return ()
        memory = self._services.memory
        if not query:
            recent = await memory.recent(user.caller, _MAX_ENTRIES)
            rows = [(str(row["title"]), str(row["slug"])) for row in recent]
        else:
            try:
                result = await memory.search(
                    user.caller, SearchRequest(query, limit=_MAX_ENTRIES, snippet_chars=_MAX_TEXT)
                )
            except (errors.BadRequest, errors.EngineUnavailable):
                return ()
            rows = [(hit.title, hit.slug) for hit in result.hits]
        return tuple(
            FindEntry(_cut(title or slug), _cut(slug), f"/memory/{quote(slug)}") for title, slug in rows
        )

    async def _runs(self, user: PageUser, query: str) -> tuple[FindEntry, ...]:
        filters = HistoryFilter(words=tuple(query.split()))
        page = await self._history.page(user.tenant, filters, _MAX_ENTRIES)
        return tuple(self._run_entry(entry) for entry in page.entries)

    def _run_entry(self, entry: HistoryEntry) -> FindEntry:
        catalog = self._services.catalog
        model = catalog[entry.model].title if entry.model in catalog else entry.model
        state = "" if entry.state == "succeeded" else f", {entry.state}"
        path = f"/live/{quote(entry.model)}" if entry.id.startswith("sess_") else f"/predictions/{entry.id}"
        return FindEntry(_cut(entry.title or model), f"{_cut(model)}{state}", path)

    async def _chat_entries(self, user: PageUser, words: Sequence[str]) -> tuple[FindEntry, ...]:
        if not self._is_enabled("gateway"):
            return ()
        chats = await self._chats.summaries(user.tenant, _MAX_CHATS if words else _MAX_ENTRIES)
        matches = [chat for chat in chats if _matches(chat.title, words)]
        return tuple(
            FindEntry(_cut(chat.title or "Chat"), _cut(chat.model), f"/chat/{quote(chat.id)}")
            for chat in matches[:_MAX_ENTRIES]
        )

    async def _guides(self, words: Sequence[str]) -> tuple[FindEntry, ...]:
        if not words:
            return ()
        return await asyncio.to_thread(_guide_entries, words)

    async def _people(self, user: PageUser, query: str) -> tuple[FindEntry, ...]:
        """Return the accounts whose address contains the query, for operators."""
        if len(query) < _MIN_ADDRESS or not user.principal.has(rights.Rights.OPERATE):
            return ()
        page = await self._services.database.read(customers.page(query, _MAX_ENTRIES, None))
        return tuple(
            FindEntry(
                _cut(str(row["email"])), "suspended" if row["suspended_at"] else "", f"{_PEOPLE}/{row['id']}"
            )
            for row in page.accounts
        )


def _guide_entries(words: Sequence[str]) -> tuple[FindEntry, ...]:
    """Return the guides with the words in their title or first sentence, followed by sections of others."""
    snapshot = docs_repository.installed().snapshot()
    matches = [guide for guide in snapshot.guides.values() if _matches(f"{guide.title} {guide.line}", words)]
    matches.sort(key=lambda guide: not _matches(guide.title, words))
    entries = [
        FindEntry(_cut(guide.title), _cut(guide.line.replace("`", "")), renderer.url(guide.name))
        for guide in matches[:_MAX_ENTRIES]
    ]
    entries += [
        FindEntry(_cut(heading.text), _cut(guide.title), f"{renderer.url(name)}#{heading.anchor}")
        for name, guide in snapshot.guides.items()
        if guide not in matches
        for heading in snapshot.headings().get(name, ())
        if _matches(heading.text, words)
    ][: _MAX_ENTRIES - len(entries)]
    return tuple(entries)


def _table_order() -> Iterable[str]:
    return (model for ability in abilities.all_abilities() for model in ability.models)


def _matches(text: str, words: Sequence[str]) -> bool:
    return abilities.matches(frozenset(abilities.words_of(text)), words)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 1]}…"
