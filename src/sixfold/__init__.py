"""Sixfold: six AI media interfaces, one account, one ledger, one server."""

from typing import TYPE_CHECKING, Any

from sixfold.model_api import Audio, Length, Media, Picture, Progress, Range, Video, model

if TYPE_CHECKING:
    from sixfold.client import AsyncClient, Client

__all__ = [
    "AsyncClient",
    "Audio",
    "Client",
    "Length",
    "Media",
    "Picture",
    "Progress",
    "Range",
    "Video",
    "__version__",
    "model",
]
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """Import the client on first use; a server and its commands start without it."""
    if name in {"AsyncClient", "Client"}:
        from sixfold import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
