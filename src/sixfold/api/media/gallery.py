"""The gallery of the Media API: characters and posts, published with a key and visible to everyone."""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Sequence
from typing import Any, Literal, TypedDict, cast

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.media import auth as media_auth
from sixfold.api.media import errors as error_format
from sixfold.core import gallery
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog import inputs
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.clock import rfc3339
from sixfold.core.gallery import Character, Post
from sixfold.core.media.media import MEDIA_PATH, MediaSource
from sixfold.core.provenance.formats import media_types
from sixfold.web import bodies, responses
from sixfold.web.bodies import BodyFields
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.responses import Url
from sixfold.web.routing import Handler, RouteEntry
from sixfold.web.services import WebServices

CHARACTER = (
    Descriptor("name", "string", "What it is called", required=True, max_chars=80),
    Descriptor("description", "string", "Who it is", default="", max_chars=2000),
    Descriptor("greeting", "string", "What it says first", default="", max_chars=500),
)
POST = (Descriptor("text", "string", "Text for the image or video", default="", max_chars=2000),)
PAGE, MAX_PAGE = 50, 100
_CURSOR = re.compile(r"[a-z]+_[0-9a-z]{36}")
_IMAGES = frozenset(kind for kind in media_types.INLINE if kind.startswith("image/"))
_MEDIA = frozenset(kind for kind in media_types.INLINE if kind.startswith(("image/", "video/")))


class NewCharacterSchema(TypedDict):
    """A character after its publication."""

    id: str
    url_name: str
    avatar_file_name: str | None
    uploaded_via_api: Literal[True]


class NewPostSchema(TypedDict):
    """A post after its publication."""

    id: str
    post_id: str
    media_url: Url
    author_user_id: str
    uploaded_via_api: Literal[True]


class CharacterSchema(TypedDict):
    """A public character."""

    id: str
    url_name: str
    name: str
    description: str
    greeting: str
    avatar_url: str | None
    author_user_id: str
    uploaded_via_api: Literal[True]
    created_at: str


class PostSchema(TypedDict):
    """A public post."""

    id: str
    text: str
    media_url: Url
    content_type: str
    tags: Sequence[str]
    author_user_id: str
    author_name: str | None
    uploaded_via_api: Literal[True]
    created_at: str


class GalleryRoutes:
    """Handlers that publish and list characters and posts."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._gallery = services.gallery

    def publisher(self, service: str) -> Handler:
        """Return the handler of `create-ai` or `create-post`."""
        publish = {"create-ai": self._character, "create-post": self._post}[service]

        async def create(request: Request) -> Response:
            principal, fields, raw = await media_auth.enter(request, self._services.authenticator)
            principal.permit(service)
            idempotent_request = IdempotentRequest(principal.replays, raw, error_format.render)

            async def work(_idempotency_id: str | None) -> Response:
                return responses.json(await publish(principal, fields))

            return await self._services.idempotency.run(request, idempotent_request, work)

        return create

    async def _character(self, principal: Principal, fields: BodyFields) -> NewCharacterSchema:
        values = inputs.check(CHARACTER, fields.values)
        avatar = await self._file(principal.tenant, fields, "avatar", _IMAGES)
        draft = gallery.CharacterDraft(
            principal.account_id, values["name"], values["description"], values["greeting"], None
        )
        character = await self._gallery.add_character(draft, avatar)
        return {
            "id": character.id,
            "url_name": character.url_name,
            "avatar_file_name": character.avatar,
            "uploaded_via_api": True,
        }

    async def _post(self, principal: Principal, fields: BodyFields) -> NewPostSchema:
        values = inputs.check(POST, fields.values)
        tags = _tags(_sent_tags(fields))
        media = await self._file(principal.tenant, fields, "media", _MEDIA)
        if media is None:
            raise _unusable("media", "media: one of media_url, media_bytes or a file is required")
        draft = gallery.PostDraft(principal.account_id, values["text"], "", media.content_type, tags)
        post = await self._gallery.add_post(draft, media)
        return {
            "id": post.id,
            "post_id": post.id,
            "media_url": self._url(post.media),
            "author_user_id": post.author_id,
            "uploaded_via_api": True,
        }

    async def _file(
        self, tenant: Tenant, fields: BodyFields, name: str, allowed_types: frozenset[str]
    ) -> MediaSource | None:
        """Store the file from `<name>_url`, `<name>_bytes` or a form, if its type is allowed."""
        by_url, by_bytes = f"{name}_url", f"{name}_bytes"
        uploads = [fields.files[part] for part in (name, by_bytes) if part in fields.files]
        sources = [key for key in (by_url, by_bytes) if fields.values.get(key) not in (None, "")]
        if len(sources) + len(uploads) > 1:
            raise _unusable(name, f"{name}: only one of {by_url}, {by_bytes} and a file is allowed")
        media, at = self._services.media, sources[0] if sources else name
        try:
            if uploads:
                source = await media.store_unnamed(uploads[0], media_types.UNKNOWN, tenant.account_id)
            elif not sources:
                return None
            elif at == by_url:
                checked = inputs.check((Descriptor(by_url, "file", required=True),), fields.values)
                source = await media.resolve(tenant, Descriptor(by_url, "file"), checked[by_url])
            else:
                data = _decoded(fields.values[by_bytes], by_bytes)
                source = await media.store_unnamed(data, media_types.UNKNOWN, tenant.account_id)
            return await self._with_type(source, at, allowed_types)
        except (errors.BadRequest, errors.TooLarge) as error:
            if isinstance(error, errors.InvalidInput):
                raise
            raise _unusable(at, f"{at}: {error.message}") from error

    async def _with_type(self, source: MediaSource, at: str, allowed_types: frozenset[str]) -> MediaSource:
        """Return the source with the type of its first bytes; raises `InvalidInput` for other types."""
        head = b""
        async for piece in self._services.blobs.stream(source.blob, 0, media_types.HEAD_BYTES):
            head += piece
        kind = media_types.sniff(head)
        if kind not in allowed_types:
            videos = "" if allowed_types is _IMAGES else ", or an MP4, WebM or MOV video"
            raise _refused(at, f"{at} must be a PNG, JPEG, WebP, GIF, AVIF or BMP image{videos}")
        source_with_type = MediaSource(source.blob, kind, source.size)
        if kind in _IMAGES:
            await self._services.media.check_image(source_with_type)
            return source_with_type
        return await self._services.media.check_duration(source_with_type, "video")

    async def characters(self, request: Request) -> Response:
        """List all characters, newest first."""
        page = await self._gallery.characters(*_part(request))
        rows = [self._shown_character(row) for row in page.rows]
        return responses.json({"characters": rows, "next_cursor": page.next_cursor})

    async def posts(self, request: Request) -> Response:
        """List all posts, or those with `tag`, newest first."""
        tag = request.query_params.get("tag", "")
        if len(tag) > 2 * gallery.MAX_TAG_CHARS:
            raise _refused("tag", f"tag must be at most {gallery.MAX_TAG_CHARS} characters")
        page = await self._gallery.posts(*_part(request), tag)
        rows = [self._shown_post(row) for row in page.rows]
        return responses.json({"posts": rows, "next_cursor": page.next_cursor})

    def _shown_character(self, row: Character) -> CharacterSchema:
        return {
            "id": row.id,
            "url_name": row.url_name,
            "name": row.name,
            "description": row.description,
            "greeting": row.greeting,
            "avatar_url": self._url(row.avatar) if row.avatar is not None else None,
            "author_user_id": row.author_id,
            "uploaded_via_api": True,
            "created_at": rfc3339(row.created_at),
        }

    def _shown_post(self, row: Post) -> PostSchema:
        return {
            "id": row.id,
            "text": row.text,
            "media_url": self._url(row.media),
            "content_type": row.content_type,
            "tags": row.tags,
            "author_user_id": row.author_id,
            "author_name": row.author_name,
            "uploaded_via_api": True,
            "created_at": rfc3339(row.created_at),
        }

    def _url(self, name: str) -> str:
        return f"{self._services.settings.base_url}{MEDIA_PATH}{name}"


def _refused(name: str, message: str) -> errors.InvalidInput:
    return errors.InvalidInput([errors.Problem(name, message, "value_error")])


def _unusable(name: str, message: str) -> errors.InvalidInput:
    return errors.InvalidInput([errors.Problem(name, message, error_format.UNUSABLE)])


def _decoded(value: Any, name: str) -> bytes:
    text = "".join(value.split()) if isinstance(value, str) else ""
    if text.startswith("data:"):
        text = text.partition(";base64,")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _refused(name, f"{name} must be valid base64") from error


def _sent_tags(fields: BodyFields) -> Any:
    """Return the field `tags`; a form repeats it, or sends a list as JSON text."""
    if "tags" in fields.repeated:
        return list(fields.repeated["tags"])
    value = fields.values.get("tags")
    if fields.is_form and isinstance(value, str) and value.lstrip().startswith("["):
        with contextlib.suppress(errors.BadRequest):
            return bodies.parse_json(value.encode())
    return value


def _tags(value: Any) -> tuple[str, ...]:
    """Return the unique tags of a list of strings or a comma-separated string."""
    if value is None:
        return ()
    entries: object = value.split(",") if isinstance(value, str) else value
    texts = cast("list[object]", entries) if isinstance(entries, list) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise _refused("tags", "tags must be a list of strings or a comma-separated string")
    if len(texts) > gallery.MAX_TAGS:
        raise _refused("tags", f"tags must have at most {gallery.MAX_TAGS} entries (got {len(texts)})")
    tags = [gallery.normalize_tag(cast("str", text)) for text in texts]
    if any(len(tag) > gallery.MAX_TAG_CHARS or _is_broken(tag) for tag in tags):
        raise _unusable(
            "tags", f"tags: each tag must be valid text of at most {gallery.MAX_TAG_CHARS} characters"
        )
    return tuple(dict.fromkeys(tag for tag in tags if tag))


def _is_broken(text: str) -> bool:
    """Return whether JSON contains an escaped lone surrogate, which databases cannot store."""
    return any("\ud800" <= char <= "\udfff" for char in text)


def _part(request: Request) -> tuple[int, str | None]:
    """Return `limit` and `cursor` of the query."""
    text = request.query_params.get("limit", str(PAGE))
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= MAX_PAGE:
        raise _refused("limit", f"limit must be from 1 to {MAX_PAGE}")
    cursor = request.query_params.get("cursor") or None
    if cursor is not None and not _CURSOR.fullmatch(cursor):
        raise _refused("cursor", "cursor must be the next_cursor of an earlier page")
    return int(text), cursor


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    counter = GalleryRoutes(services)
    limit = services.settings.inline_body_bytes
    return (
        RouteEntry("/api/create-ai", {"POST": counter.publisher("create-ai")}, limit, access=rights.RUN),
        RouteEntry("/api/create-post", {"POST": counter.publisher("create-post")}, limit, access=rights.RUN),
        RouteEntry("/api/characters", {"GET": counter.characters}, access=rights.PUBLIC),
        RouteEntry("/api/posts", {"GET": counter.posts}, access=rights.PUBLIC),
    )
