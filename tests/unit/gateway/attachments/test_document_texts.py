"""The cache of the texts of documents."""

from __future__ import annotations

from pathlib import Path

from sixfold.core.documents import Document, DocumentBlock, DocumentLimits
from sixfold.core.gateway.attachments.document_texts import DocumentTexts


class CountingReader:
    """Reader whose every document has the text `hi`; `accounts` are those whose documents it has read."""

    limits = DocumentLimits()

    def __init__(self) -> None:
        self.accounts: list[str] = []

    async def read(self, path: Path, name: str, account_id: str) -> Document:
        del path, name
        self.accounts.append(account_id)
        return Document("pdf", blocks=[DocumentBlock("hi")])


async def test_text_is_cached_for_its_account_only(tmp_path: Path) -> None:
    """The time of a request would otherwise show that another account has the same file."""
    reader = CountingReader()
    texts = DocumentTexts(reader, tmp_path)
    for account_id in ("ada", "ben", "ada"):
        assert "hi" in await texts.text(account_id, "a.pdf", b"%PDF-1.7 one")
    assert reader.accounts == ["ada", "ben"]
