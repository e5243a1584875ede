"""The gallery service, with which APIs publish and list characters and posts."""

from __future__ import annotations

from dataclasses import replace

from sixfold.core.database import Database, Transaction
from sixfold.core.gallery import characters, posts
from sixfold.core.gallery.characters import Character
from sixfold.core.gallery.pagination import GalleryPage
from sixfold.core.gallery.posts import Post
from sixfold.core.media.media import MediaService, MediaSource


class Gallery:
    """Publishes files under new names, so that other names of the same bytes remain private."""

    def __init__(self, database: Database, media: MediaService) -> None:
        self._database = database
        self._media = media

    async def add_character(self, draft: characters.CharacterDraft, avatar: MediaSource | None) -> Character:
        """Publish a character; its avatar counts as an upload. Raises `TooLarge` or `Forbidden`."""
        return await self._database.write(self._create_character(draft, avatar))

    def _create_character(
        self, draft: characters.CharacterDraft, avatar: MediaSource | None
    ) -> Transaction[Character]:
        if avatar is None:
            return (yield from characters.create(draft))
        name = yield from self._media.name_blob(draft.account_id, avatar)
        return (yield from characters.create(replace(draft, avatar=name)))

    async def add_post(self, draft: posts.PostDraft, media: MediaSource) -> Post:
        """Publish a post; its file counts as an upload. Raises `TooLarge` or `Forbidden`."""
        return await self._database.write(self._create_post(draft, media))

    def _create_post(self, draft: posts.PostDraft, media: MediaSource) -> Transaction[Post]:
        name = yield from self._media.name_blob(draft.account_id, media)
        return (yield from posts.create(replace(draft, media=name)))

    async def characters(self, limit: int, cursor: str | None) -> GalleryPage[Character]:
        """Return a page of all characters, newest first."""
        return await self._database.read(characters.list_page(limit, cursor))

    async def posts(self, limit: int, cursor: str | None, tag: str = "") -> GalleryPage[Post]:
        """Return a page of all posts, newest first, optionally only those with a tag."""
        return await self._database.read(posts.list_page(limit, cursor, posts.normalize_tag(tag)))
