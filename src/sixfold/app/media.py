"""Construction of the media service and its guarded fetcher from the settings."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from sixfold import errors, import_string
from sixfold.core.catalog import timeline
from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.catalog.models import Catalog, EngineSpec
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database
from sixfold.core.documents import DocumentLimits, DocumentReader
from sixfold.core.files.files import AccountFiles, FileLimits
from sixfold.core.media.media import MediaService
from sixfold.core.media.ports import BlobStore, MediaLimits
from sixfold.core.media.uploaded_files import UploadedFiles
from sixfold.core.provenance.certificates import InvalidCertificate
from sixfold.core.provenance.content_credentials import ContentCredentials
from sixfold.engines.documents.reader import ProcessReader
from sixfold.engines.image import headers
from sixfold.engines.video import headers as video_headers
from sixfold.net.addresses import AllowList
from sixfold.net.fetch import DEFAULT_LIMITS, Fetcher, FetchLimits
from sixfold.settings import InvalidSetting, Settings

_MAX_PEM_BYTES = 1 << 16


def open_fetcher(settings: Settings, limits: FetchLimits = DEFAULT_LIMITS) -> Fetcher:
    """Return a guarded fetcher; raises `InvalidSetting`."""
    try:
        allowed = AllowList.parse(settings.fetch_allow)
    except ValueError as error:
        raise InvalidSetting(f"fetch_allow has an invalid network: {error}") from error
    return Fetcher(allowed, limits)


_thumbnail = import_string.deferred("sixfold.engines.thumbnails.image:render")
_missing_glyphs = import_string.deferred("sixfold.engines.video.timeline.fonts:missing_characters")
_still = import_string.deferred("sixfold.engines.thumbnails.video:render")
_waveform = import_string.deferred("sixfold.engines.thumbnails.audio:render")
_mesh = import_string.deferred("sixfold.engines.thumbnails.mesh:render")
_drawing = import_string.deferred("sixfold.engines.thumbnails.shapes:render")
_card = import_string.deferred("sixfold.engines.thumbnails.shapes:render_card")


def open_media(
    settings: Settings,
    database: Database,
    blobs: BlobStore,
    uploads: BlobStore,
    fetcher: Fetcher,
    models: Catalog,
) -> MediaService:
    """Return the media service, which reads this server's URLs without a network request."""
    media = MediaService(database, blobs, fetcher, probe_image, _limits(settings), measure_duration)
    media.uploaded_files = UploadedFiles(database, uploads)
    media.own_origins.add(settings.base_url)
    media.credentials = open_credentials(settings, models.engines())
    media.thumbnails.renderers.update(image=shrink, video=shrink_video, audio=draw_waveform, model=draw_model)
    media.drawings.render_drawing, media.drawings.render_card = _drawing, _card
    return media


def open_credentials(settings: Settings, engines: Mapping[str, EngineSpec]) -> ContentCredentials | None:
    """Return the signer of C2PA manifests, or None if none is configured; raises `InvalidSetting`."""
    if settings.c2pa_certificate is None and settings.c2pa_key is None:
        return None
    if settings.c2pa_certificate is None or settings.c2pa_key is None:
        missing = "c2pa_key" if settings.c2pa_key is None else "c2pa_certificate"
        raise InvalidSetting(f"c2pa_certificate and c2pa_key must be set together; {missing} is not set")
    chain = _pem("c2pa_certificate", settings.c2pa_certificate)
    key = _pem("c2pa_key", settings.c2pa_key)
    try:
        signer = import_string.load("sixfold.app.c2pa_signer:C2paSigner")(chain, key)
    except ImportError as error:
        raise InvalidSetting(
            "c2pa_certificate requires c2pa-python: run pip install 'sixfold[c2pa]'"
        ) from error
    except InvalidCertificate as error:
        raise InvalidSetting(f"c2pa_certificate and c2pa_key cannot be used: {error}") from error

    def engine_kind(name: str) -> str | None:
        return engines[name].kind if name in engines else None

    return ContentCredentials(signer, engine_kind)


def _pem(name: str, path: Path) -> bytes:
    try:
        with path.expanduser().open("rb") as file:
            content = file.read(_MAX_PEM_BYTES + 1)
    except OSError as error:
        raise InvalidSetting(f"{name} {path} cannot be read: {error.strerror}") from error
    if len(content) > _MAX_PEM_BYTES:
        raise InvalidSetting(f"{name} {path} must be at most {_MAX_PEM_BYTES:,} bytes")
    return content


def open_files(settings: Settings, database: Database, blobs: BlobStore) -> AccountFiles:
    limits = FileLimits(settings.files_per_account, settings.file_bytes_per_account)
    return AccountFiles(database, blobs, limits, settings.scratch_dir / "files")


def document_reader(settings: Settings) -> DocumentReader:
    """Return the reader of documents, which runs in a separate process."""
    return ProcessReader(
        DocumentLimits(
            file_bytes=settings.document_bytes,
            pages=settings.document_pages,
            chars=settings.document_chars,
            seconds=settings.document_seconds,
        )
    )


def document_fetcher(settings: Settings, fetcher: Fetcher) -> Callable[[str, Path], Awaitable[object]]:
    """Return a function that fetches the document at a URL into a file."""

    async def fetch(url: str, into: Path) -> object:
        limits = {"max_bytes": settings.document_bytes, "timeout_seconds": settings.fetch_seconds}
        return await fetcher.fetch_file(url, into, **limits)

    return fetch


def probe_image(path: Path) -> tuple[str, int, int]:
    """Return the content type, width and height from an image's header; raises `BadRequest`."""
    try:
        name, width, height = headers.probe(path, whole=True)
    except headers.UnreadableImage as error:
        raise errors.BadRequest(str(error)) from error
    return f"image/{name.lower()}", width, height


def shrink(path: Path, width: int) -> bytes:
    """Return a small copy of an image as WebP; raises `BadRequest` if it cannot be decoded."""
    try:
        return bytes(_thumbnail(path, width))
    except UnusableInput as error:
        raise errors.BadRequest(str(error)) from error


def shrink_video(path: Path, width: int) -> bytes:
    """Return a small copy of a video's first frame; raises `BadRequest` if it cannot be decoded."""
    try:
        still = bytes(_still(str(path), "thumbnail"))
    except UnusableInput as error:
        raise errors.BadRequest(str(error)) from error
    with tempfile.NamedTemporaryFile(suffix=".webp") as file:
        file.write(still)
        file.flush()
        return shrink(Path(file.name), width)


def draw_waveform(path: Path, width: int) -> bytes:
    """Return the waveform of an audio file as WebP; raises `BadRequest` if it cannot be decoded."""
    try:
        return bytes(_waveform(str(path), width))
    except UnusableInput as error:
        raise errors.BadRequest(str(error)) from error


def draw_model(path: Path, width: int) -> bytes:
    """Return a picture of a 3D model as WebP; raises `BadRequest` if it cannot be read."""
    try:
        return bytes(_mesh(str(path), width))
    except UnusableInput as error:
        raise errors.BadRequest(str(error)) from error


async def check_glyphs(project: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` if a project's text has a character that the installed fonts do not contain.

    The fonts are read in a thread, at the first text that is not ASCII.
    """
    await asyncio.to_thread(timeline.check_glyphs, project, _missing)


def _missing(text: str) -> tuple[str, ...]:
    return () if text.isascii() else _missing_glyphs(text)


def measure_duration(path: Path, kind: str) -> float | None:
    """Return the seconds of a video or audio file, or None; raises `BadRequest` for a damaged file."""
    try:
        return video_headers.seconds(path, kind, whole=True)
    except UnusableInput as error:
        raise errors.BadRequest(str(error)) from error


def _limits(settings: Settings) -> MediaLimits:
    """Return the limits of media files; creates the staging folder."""
    staging = settings.scratch_dir
    staging.mkdir(parents=True, exist_ok=True)
    return MediaLimits(
        image_bytes=settings.fetch_image_bytes,
        image_pixels=settings.fetch_image_pixels,
        fetch_seconds=settings.fetch_seconds,
        quota_bytes=settings.upload_quota_bytes,
        upload_life_us=settings.upload_life_days * DAY_US,
        video_bytes=settings.fetch_film_bytes,
        video_seconds=60 * settings.fetch_film_minutes,
        video_fetch_seconds=settings.fetch_film_seconds,
        staging=staging,
        store_seconds=settings.blob_seconds,
    )
