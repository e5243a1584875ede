"""Opening a bucket by its URL, with timeouts, retries and translated errors.

    s3://bucket/prefix       Amazon S3 and compatible stores (`endpoint`)
    gs://bucket/prefix       Google Cloud Storage
    az://container/prefix    Azure Blob Storage

Credentials come from the environment variables that obstore reads (`AWS_*`, `GOOGLE_*`, `AZURE_*`), or from
the options. Error texts of a store stay in this module, since they may contain addresses and signatures.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Generator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from sixfold import errors
from sixfold.store.file_store import InvalidBlobKey, segments

if TYPE_CHECKING:
    from obstore.store import RetryConfig

Bucket = S3Store | GCSStore | AzureStore
MAX_PREFIX_CHARACTERS = 400  # with the key's 600 characters at most the providers' limit of 1,024
_RETRIES = 5
_LONGEST_SECONDS = 3600  # of a whole response; a response without progress ends after `seconds`
# Not every S3-compatible store supports bulk deletes.
_OWN = {"s3": {"disable_bulk_delete": "true"}}
_STORES: Mapping[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_LOG = logging.getLogger("sixfold.store")
_LOG.addHandler(logging.NullHandler())  # commands print the error themselves
_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_UNKNOWN = re.compile(r"non-2xx status code: 501")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_SLOW = re.compile(r"timed ?out|deadline", re.IGNORECASE)
_CREDENTIALS = re.compile(r"Error getting credentials|metadata|InvalidAccessKeyId|SignatureDoesNotMatch")


class InvalidUrl(ValueError):
    """The URL does not name a usable bucket; the message states what is expected."""


class BucketAccess(msgspec.Struct, frozen=True):
    """obstore's options for a bucket, and the timeout of one response in seconds."""

    options: Mapping[str, str] = {}
    seconds: float = 30


def open_bucket(url: str, access: BucketAccess) -> Bucket:
    """Return the bucket of a URL, without connecting to it; raises `InvalidUrl`."""
    parts = urlsplit(url)
    kind = _STORES.get(parts.scheme)
    prefix = parts.path.strip("/")
    if kind is None or not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidUrl(f"{_shown(url)} is not a bucket: use s3://bucket/prefix, gs://… or az://…")
    if prefix:
        _check_prefix(prefix)
    if access.seconds <= 0:
        raise InvalidUrl(f"the timeout of an object store must be more than 0 seconds (got {access.seconds})")
    options = {**_timeouts(access.seconds), **_OWN.get(parts.scheme, {}), **access.options}
    if any(value.startswith("http://") for value in access.options.values()):
        options.setdefault("allow_http", "true")
    try:
        bucket: Bucket = kind(
            parts.netloc, prefix=prefix or None, config=options, retry_config=_retries(access)
        )
    except (exceptions.BaseError, ValueError) as error:
        raise InvalidUrl(f"{_shown(url)} cannot be used: {_first_line(error)}") from None
    return bucket


def _timeouts(seconds: float) -> dict[str, str]:
    """Return the timeouts as options; as client options, they would hide `AWS_ALLOW_HTTP` from obstore."""
    return {
        "connect_timeout": f"{min(5, seconds) * 1000:.0f}ms",
        "read_timeout": f"{seconds * 1000:.0f}ms",
        "timeout": f"{_LONGEST_SECONDS}s",
    }


def _retries(access: BucketAccess) -> RetryConfig:
    return {
        "max_retries": _RETRIES,
        "retry_timeout": timedelta(seconds=access.seconds),
        "backoff": {"max_backoff": timedelta(seconds=5)},
    }


def _check_prefix(prefix: str) -> None:
    try:
        segments(prefix)
    except InvalidBlobKey:
        raise InvalidUrl("the prefix of a bucket must consist of segments of A-Z a-z 0-9 . _ -") from None
    if len(prefix) > MAX_PREFIX_CHARACTERS:
        raise InvalidUrl(
            f"the prefix of a bucket must be at most {MAX_PREFIX_CHARACTERS} characters (got {len(prefix)})"
        )


def _shown(url: str) -> str:
    """Return the URL without its user name, password and query."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{re.split(r'[?#]', rest.rpartition('@')[2])[0][:200]}" if rest else repr(url[:80])


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]


# -- errors ----------------------------------------------------------------------------------------


class UnconditionalStore(Exception):
    """The store does not support conditional writes."""


@contextlib.contextmanager
def understood(key: str = "", *, creating: bool = False) -> Generator[None]:
    """Translate the errors of a store into `KeyError` (for a missing object) and `StoreFailed`.

    Without a `key` a missing object is a `StoreFailed` as well. With `creating`, `AlreadyExistsError` is
    raised unchanged, and `UnconditionalStore` is raised.
    """
    try:
        yield
    except FileNotFoundError as error:
        if not key or _NO_BUCKET.search(str(error)):
            raise _failed(error) from None
        raise KeyError(key) from None
    except exceptions.AlreadyExistsError as error:
        if creating:
            raise
        raise _failed(error) from None
    except exceptions.BaseError as error:
        if creating and _UNKNOWN.search(str(error)):
            raise UnconditionalStore from None
        raise _failed(error) from None


def _failed(error: Exception) -> errors.StoreFailed:
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    failure = _store_failure(error, text, status[1] if status else "")
    about = {"status": status[1] if status else None, "error_code": code[1] if code else None}
    _LOG.warning(failure.message, extra={"error_type": type(error).__name__, **about})
    return failure


def _store_failure(error: Exception, text: str, status: str) -> errors.StoreFailed:
    if _NO_BUCKET.search(text) or isinstance(error, FileNotFoundError):
        return errors.StoreFailed("The bucket does not exist in the object store")
    refused = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
    if refused or status in {"401", "403"} or _CREDENTIALS.search(text):
        return errors.StoreFailed("The object store refuses this server's credentials")
    if status.startswith("5") or status == "429":
        return errors.StoreUnreachable("The object store currently returns errors; nothing was changed")
    if status:
        return errors.StoreFailed(
            f"The object store refused a request (status {status}); nothing was changed"
        )
    if _SLOW.search(text):
        return errors.StoreUnreachable("The object store did not respond in time; nothing was changed")
    return errors.StoreUnreachable("The object store cannot be reached; nothing was changed")
