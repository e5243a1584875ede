"""Models that belong to an account: Python models, imported spaces, workflows, trained models.

Each is a document in the catalog's format: one model under `models`, and its engines under `engines`; it may
also refer to built-in engines. Only the owner can use a model. The name refers to the newest version, but
predictions that were submitted earlier still run on their version.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from sixfold import errors
from sixfold.core import pagination
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.catalog import gradio_spaces, trained_models
from sixfold.core.catalog import models as catalog_models
from sixfold.core.catalog.metering import RunRates
from sixfold.core.catalog.models import Catalog, EngineSpec, Model
from sixfold.core.catalog.unknown_names import unknown_model
from sixfold.core.database import Database, Query, Row, Rows, Transaction, Value, encode_json, many, one
from sixfold.core.input_limits import json_decoding

_Key = tuple[str, str, int]
Admit = Callable[[Sequence[EngineSpec]], None]
_ACCOUNT = "acct_"  # prefix of account ids
# Kind of the models of the operator: Python files and container images.
KIND = "model"
_WORKFLOW = "space"  # prefix of the names of workflows
_MAX_MODELS = 1000  # per account
MAX_VERSIONS = 5000  # per account, including versions of removed models
PAGE = 100
# Maximum characters of a document; the document of a workflow contains its graph.
_MAX_CHARS = 4 * 2**20
_MAX_CHARS_OF_KIND: Mapping[str, int] = {gradio_spaces.KIND: 2**19}
# In characters. Smaller documents are decoded within a few milliseconds and stay in memory.
_LARGE = 64 * 1024
# Total characters of the decoded documents that are kept in memory.
_MAX_KEPT = 16 * 2**20


class CustomModel(msgspec.Struct, frozen=True):
    """One version of an account's model: the stored `document` and the `model` decoded from it.

    `is_operator` is set if the account is an operator's, which can use every model without paying.
    """

    account_id: str
    name: str
    version: int
    kind: str
    document: Mapping[str, Any]
    model: Model
    created_at: int
    is_operator: bool


class ImageInspector(Protocol):
    """Starts a container image once to read its inputs and outputs."""

    async def inspect(self, image: str, hardware: str | None, name: str = "") -> Mapping[str, Any]:
        """Return the catalog document of the image's model, named after the image unless `name` is given.

        Raises `EngineUnavailable` if containers cannot be started, and `BadRequest` if the image is unusable.
        """
        ...


class CustomModels:
    """The custom models of all accounts, in the database.

    `admit` is called with the engines of each loaded model, which registers them with the scheduler.
    """

    def __init__(self, database: Database, catalog: Catalog, max_versions: int = MAX_VERSIONS) -> None:
        self._database = database
        self._catalog = catalog
        self._max_versions = max_versions
        self._built: dict[_Key, CustomModel] = {}
        # Sizes of the documents in memory, least recently used first.
        self._sizes: OrderedDict[_Key, int] = OrderedDict()
        self.kept_size = 0
        self.admit: Admit = lambda _engines: None

    @property
    def rates(self) -> RunRates:
        """The rates of hardware."""
        return self._catalog.rates

    async def load(self) -> None:
        """Load all stored models at startup, so that their engines are registered."""
        key: _Key = ("", "", 0)
        while rows := await self._database.read(_after(key)):
            for row in rows:
                await self._of(row)
            key = _key(rows[-1])

    async def find(self, name: str, account_id: str) -> CustomModel:
        """Return an account's model by its name; raises `NotFound`."""
        if name.startswith(trained_models.PREFIX):
            await self._adopt(account_id)
        row = await self._database.read(
            one("custom_model_newest", account_id=account_id, name=name), snapshot=False
        )
        if row is None:
            raise self._catalog.unknown(name)
        return await self._of(row)

    def known(self, name: str, account_id: str) -> Model | None:
        """Return the newest version of an account's model that is in memory, or None."""
        cached = self._in_memory(name, account_id)
        return max(cached, key=lambda own: own.version).model if cached else None

    def is_customer_space(self, name: str, account_id: str) -> bool:
        """Return whether an account's model that is in memory is a space that a customer has imported."""
        cached = self._in_memory(name, account_id)
        return any(own.kind == gradio_spaces.KIND and not own.is_operator for own in cached)

    def _in_memory(self, name: str, account_id: str) -> list[CustomModel]:
        return [own for key, own in self._built.items() if key[:2] == (account_id, name)]

    async def page(
        self, account_id: str, kind: str = "", limit: int = PAGE, cursor: str = ""
    ) -> tuple[tuple[CustomModel, ...], str | None]:
        """Return a page of an account's models, by name, and the cursor of the next page.

        A non-empty `kind` selects models of that kind. A page ends after `limit` models or
        `pagination.PAGE_BYTES` of documents. Raises `BadRequest` for an invalid cursor.
        """
        if kind in ("", trained_models.KIND) and not cursor:
            await self._adopt(account_id)
        rows, following = await self._database.read(_page(account_id, kind, limit, cursor))
        models: list[CustomModel] = []
        for row in rows:
            models.append(await self._of(row))
            # Decoding takes milliseconds, and there may be hundreds of documents.
            await asyncio.sleep(0)
        return tuple(models), following

    async def each(self, account_id: str, kind: str = "") -> AsyncIterator[CustomModel]:
        """Yield all models of an account by name, or only those of a non-empty `kind`."""
        cursor: str | None = ""
        while cursor is not None:
            models, cursor = await self.page(account_id, kind, PAGE, cursor)
            for record in models:
                yield record
                await asyncio.sleep(0)

    async def names(self, account_id: str, kind: str = "") -> tuple[str, ...]:
        """Return the names of an account's models, or those of a kind, without loading their documents."""
        rows = await self._database.read(many("custom_model_names", account_id=account_id, kind=kind))
        return tuple(str(row["name"]) for row in rows)

    async def put(
        self,
        account_id: str,
        kind: str,
        name: str,
        document: Mapping[str, Any],
        *,
        expected: int | None = None,
    ) -> CustomModel:
        """Store a new model, or a new version; the current version must be `expected` if that is set.

        Raises `PreconditionFailed` if the current version is different, `Conflict` for the name of a built-in
        model, and `BadRequest` if the document is too long or the account has too many models or versions.
        Raises `KeyError`, `TypeError` or `ValueError` if the document is not valid.
        """
        if name in self._catalog:
            raise errors.Conflict(f"{name} is the name of a built-in model: choose another name")
        text = await asyncio.to_thread(self._checked, name, document)
        most = _MAX_CHARS_OF_KIND.get(kind, _MAX_CHARS)
        if len(text) > most:
            raise errors.BadRequest(
                f"The description of {name} may have at most {most:,} characters of JSON (got {len(text):,})"
            )
        training = document.get("training")
        training_id = training if kind == trained_models.KIND and isinstance(training, str) else None

        def transaction() -> Transaction[Row]:
            yield from _require_version(account_id, name, expected)
            row: dict[str, Value] = {"account_id": account_id, "kind": kind, "name": name, "document": text}
            return (yield from _put({**row, "training_id": training_id}, self._max_versions))

        # The request may have read the description of the model from a slow server.
        put = access_checks.while_unchanged(transaction())
        return await self._of(await self._database.write(put))

    async def remove(
        self,
        account_id: str,
        name: str,
        expected: int | None = None,
        *,
        cleanup: Transaction[None] | None = None,
    ) -> None:
        """Delete a model and run `cleanup` in the same transaction.

        Raises `NotFound`, or `PreconditionFailed` if the model's version is not `expected`.
        """

        def transaction() -> Transaction[Rows]:
            yield from _require_version(account_id, name, expected)
            prefix, _, slug = name.partition(":")
            if prefix == _WORKFLOW:
                shared = {"account_id": account_id, "kind": "workflow", "object_id": slug}
                yield Query("shares_end_object", shared)
            rows = yield from many("custom_model_remove", account_id=account_id, name=name)
            if rows and cleanup is not None:
                yield from cleanup
            return rows

        if not await self._database.write(transaction()):
            raise unknown_model(name)

    async def _adopt(self, account_id: str) -> None:
        """Register the models of trainings that succeeded since the last call.

        A training that succeeded before the server stopped is registered after the restart.
        """
        for row in await self._database.read(many("trainings_to_adopt", account_id=account_id)):
            name, document = trained_models.document(row)
            # The model stays unregistered while the account has too many models.
            with suppress(errors.BadRequest):
                await self.put(account_id, trained_models.KIND, name, document)

    def _checked(self, name: str, document: Mapping[str, Any]) -> str:
        catalog_models.parse_custom(document, self._catalog, name)
        return encode_json(document)

    async def _of(self, row: Row) -> CustomModel:
        key = _key(row)
        size = len(str(row["document"]))
        if key not in self._built:
            model = await asyncio.to_thread(self._read, key, row) if size > _LARGE else self._read(key, row)
            # Another task may have loaded the model meanwhile.
            if key not in self._built:
                self._built[key] = model
                engines = self._catalog.engines()
                self.admit([engine for engine in model.model.engines if engine.name not in engines])
        cached = self._built[key]
        self._note(key, size)
        return cached

    def _note(self, key: _Key, size: int) -> None:
        """Mark a document as used, and drop the least recently used documents."""
        if key not in self._sizes:
            self._sizes[key] = size
            self.kept_size += size
        self._sizes.move_to_end(key)
        while self.kept_size > _MAX_KEPT and len(self._sizes) > 1:
            oldest, evicted_size = self._sizes.popitem(last=False)
            self.kept_size -= evicted_size
            del self._built[oldest]

    def _read(self, key: _Key, row: Row) -> CustomModel:
        document = json_decoding.decode_whole(str(row["document"]))
        model = catalog_models.parse_custom(_apart(document, key), self._catalog, key[1])
        is_operator = row["owner_kind"] == "operator"
        return CustomModel(*key, row["kind"], document, model, row["created_at"], is_operator)


def _key(row: Row) -> _Key:
    return str(row["account_id"]), str(row["name"]), int(row["version"])


def _after(key: _Key) -> Transaction[Rows]:
    account_id, name, version = key
    about: dict[str, Value] = {"account_id": account_id, "name": name, "version": version}
    page = yield from pagination.count_rows("custom_models_sizes", about, PAGE)
    return (yield Query("custom_models_after", {**about, "limit": page.count}))


def _page(account_id: str, kind: str, limit: int, cursor: str) -> Transaction[tuple[Rows, str | None]]:
    after = pagination.name_of(cursor)
    about: dict[str, Value] = {"account_id": account_id, "kind": kind, "after": after}
    page = yield from pagination.count_rows("custom_models_page_sizes", about, limit)
    rows = yield Query("custom_models_page", {**about, "limit": page.count})
    return rows, pagination.cursor_after(str(rows[-1]["name"])) if page.has_more else None


def _require_version(account_id: str, name: str, expected: int | None) -> Transaction[None]:
    if expected is None:
        return
    row = yield from one("custom_model_newest", account_id=account_id, name=name)
    if row is None:
        raise unknown_model(name)
    if row["version"] != expected:
        raise errors.PreconditionFailed(
            f"{name} was changed in the meantime (it has version {row['version']}, not {expected}): read it "
            "again first"
        )


def _put(row: Mapping[str, Value], max_versions: int) -> Transaction[Row]:
    same_name = yield from one("custom_models_beside", account_id=row["account_id"], name=row["name"])
    if same_name is not None and same_name["count"] >= _MAX_MODELS:
        raise errors.BadRequest(f"An account may have at most {_MAX_MODELS} models: delete one first")
    if same_name is not None and same_name["versions"] >= max_versions:
        raise errors.BadRequest(
            f"An account may store at most {max_versions:,} versions of its models, including removed ones: "
            "ask the operator to raise SIXFOLD_MODEL_VERSIONS"
        )
    return (yield Query("custom_model_insert", row))[0]


def engine_name(engine: str) -> str:
    """Return an engine's public name: `model@version` for an engine of a custom model."""
    _, mark, account_part = engine.partition(f"/{_ACCOUNT}")
    return account_part.partition("/")[2] if mark else engine


def _apart(document: Mapping[str, Any], key: tuple[str, str, int]) -> dict[str, Any]:
    """Return the document with engine names that are unique across accounts and versions."""
    account_id, name, version = key
    engine_names = {
        engine: f"{engine}/{account_id}/{name}@{version}" for engine in document.get("engines", {})
    }
    row = document["models"][name]
    return {
        "engines": {engine_names[engine]: facts for engine, facts in document.get("engines", {}).items()},
        "models": {name: {**row, "engines": [engine_names.get(engine, engine) for engine in row["engines"]]}},
    }
