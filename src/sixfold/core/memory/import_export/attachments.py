"""Files of pages: images, sound, videos and PDF files from imports, and their embedding in texts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Query, Transaction, encode_json, one
from sixfold.core.files import files
from sixfold.core.files.files import AccountFile
from sixfold.core.memory import links, markdown, pages, slugs
from sixfold.core.memory.import_export import paths
from sixfold.core.memory.models import Caller

PAGE_TYPE = "attachment"
# The purpose of these files among the files of an account.
PURPOSE = "memory"
PDF = "application/pdf"
ENDINGS = (
    *(".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".bmp"),
    *(".mp3", ".wav", ".ogg", ".m4a", ".flac", ".mp4", ".webm", ".mov"),
)
# Kinds of files that note-taking applications write.
_LEFT_OUT = {
    ".base": "a view of Obsidian's properties",
    ".edn": "settings of Logseq",
    ".css": "styles",
    ".js": "a program",
    ".csv": "a table; its rows are pages of their own in exports of Notion",
    ".svg": "SVG images can contain programs",
    ".zip": "an archive within the archive: import it separately",
}
_MEDIA = ("image/", "audio/", "video/")
_MAX_EMBEDDED = 200
# Maximum characters of names that are read while the event loop waits, and the characters that each adds.
_MAX_NAME_CHARS, _REFERENCE_CHARS = 50_000, 20
_WIKI = re.compile(r"!\[\[([^\[\]\n|#]{1,500})")
_IMAGE = re.compile(r"!\[[^\[\]\n]{0,300}\]\(<?([^()<>\n]{1,500}?)>?(?:[ ]{1,20}\"[^\"\n]{0,500}\")?\)")


class PageFile(NamedTuple):
    """The file of a page: the page's slug and title, and the media type."""

    slug: str
    title: str
    media_type: str


def is_attachment(path: str) -> bool:
    """Return whether a path is that of an image, audio or video file."""
    return path.lower().endswith(ENDINGS)


def is_stored(media_type: str) -> bool:
    """Return whether files of a media type, detected from the content, are stored."""
    return media_type.startswith(_MEDIA) and media_type != "image/svg+xml"


def why_left_out(path: str) -> str:
    """Return why a file was omitted from an import."""
    if not paths.is_visible(path):
        return "settings or a hidden folder"
    ending = PurePosixPath(path).suffix.lower()
    if ending in _LEFT_OUT:
        return _LEFT_OUT[ending]
    if is_attachment(path):
        return "its content is not an image, audio or video format that this server shows"
    return f"{ending or 'a file without an extension'} is not a page, document, image, audio or video"


def target(name: str, slug: str) -> str | None:
    """Return the slug to which the relative path of an embedded image leads from a page, or None."""
    path = PurePosixPath(name)
    if not path.suffix or path.suffix.lower() == ".md":
        return None
    return markdown.file_target(name, slugs.parent(slug))


def embedded_slugs(body: str, slug: str) -> frozenset[str]:
    """Return the slugs of the files that a text embeds: `![[lamp.png]]` and `![](lamp.png)`."""
    if "![" not in body:
        return frozenset()
    text = markdown.without_code(body)
    found = itertools.chain(
        ((_reference(match[1]), len(match[1])) for match in _WIKI.finditer(text)),
        ((target(match[1], slug), len(match[1])) for match in _IMAGE.finditer(text)),
    )
    targets = set[str]()
    chars = 0
    for name, size in found:
        if name:
            targets.add(name)
        chars += size + _REFERENCE_CHARS
        if len(targets) == _MAX_EMBEDDED or chars > _MAX_NAME_CHARS:
            break
    return frozenset(targets)


def _reference(name: str) -> str | None:
    reference = markdown.parse_reference(name)
    return None if reference is None else reference.target


def of_names(caller: Caller, names: Iterable[str], slug: str) -> Transaction[dict[str, PageFile]]:
    """Return the files of pages that a text names, if the caller can see these pages."""
    folder = slugs.parent(slug)
    resolved = yield from links.targets(caller.account_id, [(name, folder) for name in names])
    if not resolved:
        return {}
    file_rows = yield from of_pages(caller.account_id, sorted({target.id for target in resolved.values()}))
    rows = yield Query("pages_titled", {"account_id": caller.account_id, "ids": encode_json(list(file_rows))})
    visible = {
        row["id"]: PageFile(row["slug"], row["title"], file_rows[row["id"]][1])
        for row in rows
        if caller.sees(tuple(pages.names_of(row["collections"])))
    }
    return {name: visible[page.id] for (name, _), page in resolved.items() if page.id in visible}


def of_pages(account_id: str, ids: Sequence[str]) -> Transaction[dict[str, tuple[str, str]]]:
    """Return the id and media type of the file of each page that has a file."""
    rows = yield Query("page_files", {"account_id": account_id, "ids": encode_json(list(ids))})
    return {row["page_id"]: (row["file_id"], row["media_type"]) for row in rows}


def put(caller: Caller, slug: str, file: AccountFile) -> Transaction[None]:
    """Set the file of a page, and delete its previous file."""
    location = yield from pages.find(caller, slug)
    old = yield from of_pages(caller.account_id, [location.page.id])
    yield Query(
        "page_file_put",
        {
            "page_id": location.page.id,
            "account_id": caller.account_id,
            "file_id": file.id,
            "media_type": file.content_type,
        },
    )
    for file_id, _ in old.values():
        row = yield from one("file_by_id", **tenant(caller).row, id=file_id, memory=1)
        if row is not None:
            yield from files.delete(tenant(caller), file_id, with_memory=True)


def find(caller: Caller, slug: str) -> Transaction[AccountFile]:
    """Return the file of a page that the caller can see; raises `NotFound`."""
    location = yield from pages.find(caller, slug)
    file_rows = yield from of_pages(caller.account_id, [location.page.id])
    if not file_rows:
        raise errors.NotFound(f"The page {slug} does not have a file")
    return (yield from files.find(tenant(caller), file_rows[location.page.id][0], with_memory=True))


def tenant(caller: Caller) -> Tenant:
    """Return the tenant that owns the files of pages, which is the account."""
    return Tenant(caller.account_id)
