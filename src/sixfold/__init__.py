"""Sixfold: six AI media interfaces, one account, one ledger, one server."""

from sixfold.model_api import Audio, Length, Media, Picture, Progress, Range, Video, model

__all__ = ["Audio", "Length", "Media", "Picture", "Progress", "Range", "Video", "__version__", "model"]
__version__ = "0.1.0"
