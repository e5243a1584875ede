"""The components of vector stores, which are built together."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sixfold.core.database import Database
from sixfold.core.documents import DocumentReader
from sixfold.core.files.files import AccountFiles
from sixfold.core.memory.search.ports import Index
from sixfold.core.vector_stores.ingestion import VectorStoreIngestion
from sixfold.core.vector_stores.search import VectorStoreSearch
from sixfold.core.vector_stores.stores import VectorStoreLimits, VectorStores


class VectorStoreParts(msgspec.Struct, frozen=True):
    """The stores, the ingestion of their files, and their search."""

    stores: VectorStores
    ingestion: VectorStoreIngestion
    search: VectorStoreSearch


def build(
    database: Database,
    files: AccountFiles,
    reader: DocumentReader,
    limits: VectorStoreLimits,
    new_index: Callable[[], Index],
) -> VectorStoreParts:
    return VectorStoreParts(
        VectorStores(database, limits),
        VectorStoreIngestion(database, files, reader, limits),
        VectorStoreSearch(database, new_index),
    )
