"""Decoding of what a ComfyUI server sends: strict JSON in pieces, and smaller documents with NaN in them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core import json_decoding
from sixfold.core.json_limits import JsonLimits

_LOOP_BYTES = 64 * 1024  # are decoded within a millisecond
# `json` stops all threads while it decodes, 10 ms for each MiB.
_LENIENT_BYTES = 8 * 2**20
# All of `/object_info` with many custom nodes has about 300,000 arrays and objects.
_LIMITS = JsonLimits(containers=500_000, members=1_000_000, values=3_000_000, backslashes=16_000_000)


async def decoded(body: bytes) -> Any:
    """The value of a JSON document; raises `ValueError` for any other, and for one over a limit.

    ComfyUI writes NaN where a node returns it; a document over 8 MiB must be without.
    """
    return json.loads(body) if len(body) <= _LOOP_BYTES else await asyncio.to_thread(_decode, body)


def _decode(body: bytes) -> Any:
    try:
        _LIMITS.check(body)
        return json_decoding.decode(body)
    except errors.InputTooLarge as error:
        raise ValueError(error.message) from error
    except (msgspec.MsgspecError, RecursionError) as error:
        if len(body) > _LENIENT_BYTES:
            raise ValueError(f"{len(body):,} bytes of JSON are invalid") from error
        return json.loads(body)
