"""Images as files, for requests and fakes."""

from __future__ import annotations

import base64
import io
from typing import Any

from PIL import Image


def encode(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    """Return the image as a file."""
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def data_uri(content: bytes, content_type: str = "image/png") -> str:
    return f"data:{content_type};base64,{base64.b64encode(content).decode()}"
