"""Construction of the memory: pages, search, and the chat model that extracts facts and answers questions."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from sixfold import import_string
from sixfold.app import media as app_media
from sixfold.core import money
from sixfold.core.accounts.keys import Principal
from sixfold.core.database import Database
from sixfold.core.documents import DocumentReader
from sixfold.core.files.files import AccountFiles
from sixfold.core.gateway import idempotency as gateway_idempotency
from sixfold.core.gateway.chat import ChatMessage, ChatRequest, TextPart
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.media.ports import BlobStore
from sixfold.core.memory.facts.ports import FactCall, ModelPrompt, ModelReply, SpendingLimits
from sixfold.core.memory.facts.service import FactService
from sixfold.core.memory.import_export.documents import DocumentImports, FetchDocument
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.search.index_cache import IndexCache
from sixfold.core.memory.search.index_snapshots import IndexSnapshots
from sixfold.core.memory.search.service import SearchService
from sixfold.core.memory.service import MemoryService
from sixfold.net.fetch import Fetcher
from sixfold.settings import Settings
from sixfold.store.search.snapshot_files import SnapshotFolder


class GatewayChat:
    """A chat model of the gateway, which reserves an amount and charges for each request."""

    def __init__(self, database: Database, gateway: Gateway, model: str) -> None:
        self._database = database
        self._gateway = gateway
        self._model = model

    def max_cost(self, prompt: ModelPrompt) -> int:
        """Return the amount that the gateway would reserve, in micro-dollars."""
        return self._gateway.max_cost(_request(prompt), self._model)

    async def ask(self, principal: Principal, call: FactCall, prompt: ModelPrompt) -> ModelReply:
        """Return the model's reply. Raises the errors of `Gateway.complete_chat`."""
        if call.once:
            recording = gateway_idempotency.begin_round(call.once, call.number, call.id)
            await self._database.write(recording, durable=False)
        reply = await self._gateway.complete_chat(principal, call.id, _request(prompt), self._model, "memory")
        text = "" if reply.answer is None else reply.answer.text
        return ModelReply(text, reply.target, reply.cost)

    async def refund_lost(self, once: str) -> None:
        await self._database.write(gateway_idempotency.refund_rounds(once))

    async def refund(self, call_ids: Sequence[str], error: str) -> None:
        await self._gateway.refund(call_ids, error)


def _request(prompt: ModelPrompt) -> ChatRequest:
    message = ChatMessage("user", (TextPart(prompt.message),))
    return ChatRequest((message,), prompt.system, max_tokens=prompt.max_tokens, temperature=0)


def facts(settings: Settings, database: Database, memory: MemoryService, gateway: Gateway) -> FactService:
    """Return the service for `remember` and `answer`, without a model unless one is configured."""
    model = GatewayChat(database, gateway, settings.memory_model) if settings.memory_model else None
    amounts = (settings.memory_call_usd, settings.memory_day_usd)
    limits = SpendingLimits(*(round(amount * money.MICROS_PER_USD) for amount in amounts))
    return FactService(database, memory, model, limits)


def pages(
    settings: Settings,
    database: Database,
    searcher: SearchService,
    reader: DocumentReader,
    fetcher: Fetcher,
    blobs: BlobStore,
) -> MemoryService:
    fetch = app_media.document_fetcher(settings, fetcher)
    files = app_media.open_files(settings, database, blobs)
    documents = document_imports(settings, database, reader, fetch, files)
    return MemoryService(database, _limits(settings), settings.base_url, searcher, documents, files)


def document_imports(
    settings: Settings, database: Database, reader: DocumentReader, fetch: FetchDocument, files: AccountFiles
) -> DocumentImports:
    return DocumentImports(database, _limits(settings), reader, settings.data_dir / "tmp", fetch, files)


def _limits(settings: Settings) -> MemoryLimits:
    return MemoryLimits(
        page_bytes=settings.memory_page_bytes,
        import_files=settings.memory_import_files,
        import_bytes=settings.memory_import_bytes,
        account_pages=settings.memory_account_pages,
        account_bytes=settings.memory_account_bytes,
        plans_enforced=settings.memory_plans == "enforced",
    )


def search(settings: Settings, database: Database) -> SearchService:
    """Return the memory's search, which uses MiniLM if `sixfold engines add embeddings` has installed it."""
    folder = settings.data_dir / "weights" / "embeddings"
    # Deferred, because importing numpy takes 15 MB of memory.
    index = import_string.deferred("sixfold.store.search.index:PageIndex")
    find = import_string.deferred("sixfold.engines.text.minilm:find")
    files = SnapshotFolder(settings.data_dir / "indexes", settings.memory_index_bytes)
    snapshots = IndexSnapshots(database, files)
    new_index = functools.partial(index, settings.data_dir / "tmp")
    cache = IndexCache(database, new_index, settings.memory_index_bytes, snapshots)
    return SearchService(database, cache, lambda: find(folder) if folder.is_dir() else None)
