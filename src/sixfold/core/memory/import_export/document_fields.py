"""The arguments of an import of documents, which REST and MCP share."""

from __future__ import annotations

from sixfold.core import documents
from sixfold.core.memory import limits, page_edits
from sixfold.core.memory.import_export.documents import DocumentOptions
from sixfold.core.memory.operation_schema import Arguments, OperationField

DOCUMENT = (
    OperationField(
        "name",
        "string",
        "File name, such as report.pdf: PDF, DOCX, HTML, EPUB, TXT or MD, or a zip or tar of them",
        required=True,
        max_chars=documents.NAME_CHARS,
    ),
    OperationField("folder", "string", "Folder of the new pages, such as papers", max_chars=limits.LONG_SLUG),
    OperationField("tags", "strings", "Tags of the pages"),
    OperationField("collections", "strings", "Collections of the pages"),
)
IMPORT_DOCUMENT = (
    *DOCUMENT,
    OperationField("url", "string", "http or https URL of the file", max_chars=2_000),
    OperationField("content", "string", "The file in base64, as an alternative to url"),
)


def parse(arguments: Arguments) -> DocumentOptions:
    return DocumentOptions(
        arguments["folder"] or "",
        page_edits.texts("tags", arguments["tags"] or ()),
        page_edits.texts("collections", arguments["collections"] or ()),
    )
