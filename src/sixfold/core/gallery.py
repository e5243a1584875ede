"""The public gallery: characters and posts that accounts publish."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from anyascii import anyascii
from msgspec.structs import replace

from sixfold import errors
from sixfold.core import ids, pagination
from sixfold.core.accounts import audit_log
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.operation import actions
from sixfold.core.database import Database, Query, Row, Transaction, one, to_struct
from sixfold.core.media.media import MediaService, MediaSource
from sixfold.core.media.private_copies import PrivateCopies, PublishedFile
from sixfold.core.predictions import refunds

MAX_CHARACTERS = MAX_POSTS = 10_000
MAX_TAGS, MAX_TAG_CHARS = 20, 40
_URL_NAME_CHARS = 48
_MAX_ATTEMPTS = 8
_NO_CHARACTER, _NO_POST = "The character was not found", "The post was not found"
_PUBLIC_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{1,29}", re.ASCII)


class _NamedRow(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T")
N = TypeVar("N", bound=_NamedRow)


class GalleryPage(msgspec.Struct, Generic[T], frozen=True):
    """A page of rows; `next_cursor` is None on the last page."""

    rows: tuple[T, ...]
    next_cursor: str | None


def _page(entries: Sequence[N], limit: int) -> GalleryPage[N]:
    """Return the first `limit` rows; `entries` contain one more row if there is another page."""
    rows = tuple(entries[:limit])
    return GalleryPage(rows, rows[-1].id if len(entries) > limit else None)


# -- characters -----------------------------------------------------------------------------------------


class CharacterDraft(msgspec.Struct, frozen=True):
    """A character to create; `avatar` names a stored file, and `original` the blob of which it is a copy."""

    account_id: str
    name: str
    description: str
    greeting: str
    avatar: str | None
    original: str | None = None


class Character(msgspec.Struct, frozen=True):
    """A published character; the time is in epoch µs."""

    id: str
    account_id: str
    author_id: str
    url_name: str
    name: str
    description: str
    greeting: str
    avatar: str | None
    created_at: int

    @classmethod
    def of(cls, row: Row) -> Character:
        return to_struct(cls, row)


def create_character(draft: CharacterDraft) -> Transaction[Character]:
    """Create a character; raises `Forbidden` if the account has too many."""
    usage = yield from one("gallery_character_count", account_id=draft.account_id)
    if usage is not None and usage["total"] >= MAX_CHARACTERS:
        raise errors.Forbidden(f"An account can create at most {MAX_CHARACTERS} characters")
    url_name = yield from _unique_name(slug(draft.name))
    rows = yield Query(
        "gallery_character_insert",
        {
            "id": ids.new("char"),
            "account_id": draft.account_id,
            "url_name": url_name,
            "name": draft.name,
            "description": draft.description,
            "greeting": draft.greeting,
            "avatar": draft.avatar,
            "original": draft.original,
        },
    )
    return Character.of(rows[0])


def list_characters(limit: int, cursor: str | None) -> Transaction[GalleryPage[Character]]:
    """Return a page of all characters, newest first."""
    rows = yield Query("gallery_characters", {"before": pagination.id_before(cursor), "limit": limit + 1})
    return _page([Character.of(row) for row in rows], limit)


def delete_character(account_id: str, character_id: str) -> Transaction[None]:
    """Delete a character of an account with its avatar; raises `NotFound`."""
    rows = yield Query("gallery_character_delete", {"id": character_id, "account_id": account_id})
    if not rows:
        raise errors.NotFound(_NO_CHARACTER)
    if rows[0]["avatar"] is not None:
        yield Query("media_expire", {"name": rows[0]["avatar"], "account_id": account_id})


def remove_character(actor: Principal, character_id: str) -> Transaction[None]:
    """Delete a character of any account as an operator, and record it; raises `NotFound`."""
    row = yield from one("gallery_character_account", id=character_id)
    if row is None:
        raise errors.NotFound(_NO_CHARACTER)
    account_id = str(row["account_id"])
    yield from delete_character(account_id, character_id)
    yield from _note_removal(actor, account_id, "character", character_id)


def slug(name: str) -> str:
    """Return the form of a name for URLs, in Latin letters, or `character` if none can be derived."""
    text = re.sub(r"[^a-z0-9]+", "-", anyascii(name).lower())
    return text.strip("-")[:_URL_NAME_CHARS].strip("-") or "character"


def _unique_name(slug_text: str) -> Transaction[str]:
    candidate = slug_text
    for _ in range(_MAX_ATTEMPTS):
        existing = yield from one("gallery_url_name", url_name=candidate)
        if existing is None:
            return candidate
        candidate = f"{slug_text}-{secrets.token_hex(4)}"
    raise errors.Conflict("This name is already taken: try again")


# -- posts ----------------------------------------------------------------------------------------------


class PostDraft(msgspec.Struct, frozen=True):
    """A post to create; `media` names a stored file.

    An unlisted post can only be reached by its URL. `model` and `inputs` are those of the run, which other
    users may repeat with changes. Without a model, the file of a run is a copy that does not contain the
    inputs, and `original` is the blob whose withdrawal also withdraws the copy.
    """

    account_id: str
    text: str
    media: str
    content_type: str
    tags: tuple[str, ...]
    is_unlisted: bool = False
    model: str = ""
    inputs: Mapping[str, Any] = {}
    original: str | None = None


class Post(msgspec.Struct, frozen=True):
    """A published post; the time is in epoch µs. `author_name` is None until the author chooses a name."""

    id: str
    account_id: str
    author_id: str
    author_name: str | None
    text: str
    media: str
    content_type: str
    tags: tuple[str, ...]
    is_unlisted: bool
    model: str
    inputs: Mapping[str, Any]
    created_at: int

    @classmethod
    def of(cls, row: Row) -> Post:
        tags, inputs = tuple(json.loads(row["tags"])), json.loads(row["inputs"])
        return to_struct(cls, row, tags=tags, is_unlisted=bool(row["is_unlisted"]), inputs=inputs)


def create_post(draft: PostDraft) -> Transaction[Post]:
    """Create a post; raises `Forbidden` if the account has too many."""
    usage = yield from one("gallery_post_count", account_id=draft.account_id)
    if usage is not None and usage["total"] >= MAX_POSTS:
        raise errors.Forbidden(f"An account can have at most {MAX_POSTS} posts: delete one first")
    rows = yield Query(
        "gallery_post_insert",
        {
            "id": ids.new("post"),
            "account_id": draft.account_id,
            "text": draft.text,
            "media": draft.media,
            "content_type": draft.content_type,
            "tags": json.dumps(draft.tags, ensure_ascii=False),
            "is_unlisted": int(draft.is_unlisted),
            "model": draft.model,
            "inputs": json.dumps(draft.inputs, ensure_ascii=False),
            "original": draft.original,
        },
    )
    post = Post.of(rows[0])
    for tag in draft.tags:
        yield Query("gallery_tag_insert", {"tag": tag, "post_id": post.id})
    return post


def get_post(post_id: str) -> Transaction[Post]:
    """Return a post; raises `NotFound`, also while its account is suspended or about to be closed."""
    row = yield from one("gallery_post", id=post_id)
    if row is None:
        raise errors.NotFound(_NO_POST)
    return Post.of(row)


def delete_post(account_id: str, post_id: str) -> Transaction[None]:
    """Delete a post of an account with its file; raises `NotFound`."""
    params = {"id": post_id, "account_id": account_id}
    yield Query("gallery_post_tags_delete", params)
    rows = yield Query("gallery_post_delete", params)
    if not rows:
        raise errors.NotFound(_NO_POST)
    yield Query("media_expire", {"name": rows[0]["media"], "account_id": account_id})


def remove_post(actor: Principal, post_id: str) -> Transaction[None]:
    """Delete a post of any account, also of a suspended one, as an operator; raises `NotFound`."""
    row = yield from one("gallery_post_account", id=post_id)
    if row is None:
        raise errors.NotFound(_NO_POST)
    account_id = str(row["account_id"])
    yield from delete_post(account_id, post_id)
    yield from _note_removal(actor, account_id, "post", post_id)


def _note_removal(actor: Principal, account_id: str, kind: str, item_id: str) -> Transaction[None]:
    yield from audit_log.note(account_id, f"{kind}.remove", item_id)
    yield actions.note(actor, f"{kind}.remove", account_id, before={kind: item_id})


def public_name(account_id: str) -> Transaction[str]:
    """Return the name under which an account publishes, or an empty string if it has not chosen one."""
    row = yield from one("account_public_name", id=account_id)
    return (row["public_name"] or "") if row is not None else ""


def set_public_name(account_id: str, name: str) -> Transaction[None]:
    """Set the name under which an account publishes; raises `InvalidInput` and `Conflict`."""
    if not _PUBLIC_NAME.fullmatch(name):
        raise errors.InvalidInput.of(
            "name", "Your name must have 2 to 30 lowercase letters, digits, hyphens or underscores"
        )
    owner = yield from one("account_by_public_name", name=name)
    if owner is not None and owner["id"] != account_id:
        raise errors.Conflict(f"The name {name} belongs to another account: choose another one")
    yield Query("account_public_name_set", {"id": account_id, "name": name})


def list_posts(limit: int, cursor: str | None, tag: str) -> Transaction[GalleryPage[Post]]:
    """Return a page of all posts, newest first, optionally only those with a tag."""
    name = "gallery_posts_tagged" if tag else "gallery_posts"
    params: dict[str, str | int] = {"before": pagination.id_before(cursor), "limit": limit + 1}
    rows = yield Query(name, {**params, "tag": tag} if tag else params)
    return _page([Post.of(row) for row in rows], limit)


def normalize_tag(tag: str) -> str:
    """Return the stored form of a tag: lower case, without `#` and extra spaces."""
    return " ".join(tag.strip().lstrip("#").split()).casefold()


# -- service --------------------------------------------------------------------------------------------


class Gallery:
    """Publishes files under new names, so that other names of the same bytes remain private."""

    def __init__(self, database: Database, media: MediaService, copies: PrivateCopies) -> None:
        self._database = database
        self._media = media
        self._copies = copies

    async def add_character(self, draft: CharacterDraft, avatar: MediaSource | None) -> Character:
        """Publish a character; its avatar counts as an upload, and does not contain a prompt.

        Raises `TooLarge`, `Forbidden` and `Conflict`.
        """
        if avatar is None:
            return await self._write(create_character(draft))
        file = await self._copy(draft.account_id, avatar)
        return await self._write(self._create_character(draft, file))

    async def _write(self, transaction: Transaction[T]) -> T:
        """Run a transaction of a request, which may have fetched a file from a slow server."""
        return await self._database.write(access_checks.while_unchanged(transaction))

    def _create_character(self, draft: CharacterDraft, file: PublishedFile) -> Transaction[Character]:
        name, original = yield from self._name(draft.account_id, file)
        return (yield from create_character(replace(draft, avatar=name, original=original)))

    async def add_post(self, draft: PostDraft, media: MediaSource, *, is_output: bool = False) -> Post:
        """Publish a post; its file counts as an upload, and contains the prompt only if the post shows it.

        `is_output` states that the file is known to be the output of a run. Raises `TooLarge`, `Forbidden`
        and `Conflict`.
        """
        file = PublishedFile(media, media.blob)
        if not draft.model:
            file = await self._copy(draft.account_id, media, is_output=is_output)
        return await self._write(self._create_post(draft, file))

    def _create_post(self, draft: PostDraft, file: PublishedFile) -> Transaction[Post]:
        name, original = yield from self._name(draft.account_id, file)
        return (yield from create_post(replace(draft, media=name, original=original)))

    async def _copy(self, account_id: str, source: MediaSource, *, is_output: bool = False) -> PublishedFile:
        if not is_output:
            original = _original(account_id, PublishedFile(source, source.blob))
            is_output = await self._database.read(original) is not None
        return await self._copies.make(account_id, source, is_output=is_output)

    def _name(self, account_id: str, file: PublishedFile) -> Transaction[tuple[str, str | None]]:
        """Name a file, and return the output of which it is a copy, or None.

        Raises `Conflict` if the run of the output was refunded.
        """
        original = (yield from _original(account_id, file)) or file.original
        withdrawn = {"blob": original, "account_id": account_id, "error_kind": refunds.REFUNDED}
        if (yield from one("media_withdrawn", **withdrawn)) is not None:
            raise errors.Conflict("The file cannot be published: its run was refunded")
        name = yield from self._media.name_blob(account_id, file.source)
        return name, original if original != file.source.blob else None

    async def characters(self, limit: int, cursor: str | None) -> GalleryPage[Character]:
        """Return a page of all characters, newest first."""
        return await self._database.read(list_characters(limit, cursor))

    async def posts(self, limit: int, cursor: str | None, tag: str = "") -> GalleryPage[Post]:
        """Return a page of all posts, newest first, optionally only those with a tag."""
        return await self._database.read(list_posts(limit, cursor, normalize_tag(tag)))


def _original(account_id: str, file: PublishedFile) -> Transaction[str | None]:
    """Return the blob of the output that a file is, or of which it is a copy; None if it is neither."""
    params = {"account_id": account_id, "blob": file.original, "prediction_id": file.prediction_id}
    row = yield from one("gallery_original", **params)
    return None if row is None else str(row["original"])
