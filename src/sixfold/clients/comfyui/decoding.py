"""Decoding of ComfyUI's JSON: large documents strictly and in a thread, smaller ones with NaN."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core.input_limits import json_decoding, json_limits

# A message of this size is decoded within a millisecond.
_LOOP_BYTES = 64 * 1024
# `json` blocks all threads while it decodes, 10 ms for each MiB.
_LENIENT_BYTES = 8 * 2**20


async def decode(body: bytes) -> Any:
    """Return the value of a JSON document; raises `ValueError` if it is invalid or above a limit.

    ComfyUI writes NaN if a node returns it; a document over 8 MiB must not contain it.
    """
    return json.loads(body) if len(body) <= _LOOP_BYTES else await asyncio.to_thread(_decode, body)


def _decode(body: bytes) -> Any:
    try:
        json_limits.RESPONSE.check(body)
        return json_decoding.decode(body)
    except errors.InputTooLarge as error:
        raise ValueError(error.message) from error
    except (msgspec.MsgspecError, RecursionError) as error:
        if len(body) > _LENIENT_BYTES:
            raise ValueError(f"the body ({len(body):,} bytes) is not valid JSON") from error
        return json.loads(body)
