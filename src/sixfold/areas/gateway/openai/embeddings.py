"""Embeddings: texts in, vectors out, as numbers or as base64.

Source: https://platform.openai.com/docs/api-reference/embeddings.
"""

from __future__ import annotations

import array
import base64
import math
import sys
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from sixfold.areas.gateway.openai import making
from sixfold.areas.gateway.openai.elsewhere import Elsewhere, Passed
from sixfold.areas.gateway.openai.errors import Wrong
from sixfold.areas.gateway.openai.making import Maker
from sixfold.core.accounts.keys import Principal
from sixfold.core.relay.chat import tokens_of
from sixfold.core.relay.usage import Usage
from sixfold.web import answers, bodies

MODEL = "embeddings"
_MOST = 2048
_DIMENSIONS = 384  # of every engine of this model
_CHARS_PER_TOKEN = 3.5  # as where a model server does not count


class Embeddings:
    """`POST /v1/embeddings`."""

    def __init__(self, maker: Maker, elsewhere: Elsewhere) -> None:
        self._maker = maker
        self._elsewhere = elsewhere

    async def make(self, request: Request) -> Response:
        """The vectors of a text or of some."""

        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            raw = await request.body()
            body = bodies.parse_object(raw)
            if self._elsewhere.makes(MODEL, body.get("model")):
                passed = Passed(MODEL, MODEL, body["model"], raw, Usage(tokens_of(len(raw))))
                return await self._elsewhere.answer(request, principal, passed, idempotency_id)
            model = making.ours(MODEL, body.get("model"))
            texts = _texts(body.get("input"))
            if body.get("dimensions") not in (None, _DIMENSIONS):
                raise Wrong(f"dimensions must be {_DIMENSIONS} or left out", param="dimensions")
            encoding = making.choice(body, "encoding_format", ("float", "base64"), "float")
            order = making.asked(request, principal, model, {"texts": texts}, idempotency_id=idempotency_id)
            (prediction,) = await self._maker.made(order)
            vectors = cast("list[list[float]]", making.told(prediction, MODEL)[MODEL])
            return answers.json(
                _told(body, texts, vectors, encoding), headers=answers.result_headers(prediction)
            )

        return await self._maker.once(request, work)


def _texts(given: Any) -> list[str]:
    texts = cast("list[Any]", given) if isinstance(given, list) else [given]
    if not 0 < len(texts) <= _MOST:
        raise Wrong(f"input must hold 1 to {_MOST} texts", param="input")
    if any(not isinstance(text, str) for text in texts):
        raise Wrong("input must be a text or a list of texts; tokens are not read here", param="input")
    if any(not text for text in texts):
        raise Wrong("input must not hold empty texts", param="input")
    return cast("list[str]", texts)


def _told(body: dict[str, Any], texts: list[str], vectors: list[list[float]], encoding: str) -> Any:
    used = sum(math.ceil(len(text) / _CHARS_PER_TOKEN) for text in texts)
    rows = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _packed(vector) if encoding == "base64" else vector,
        }
        for index, vector in enumerate(vectors)
    ]
    return {
        "object": "list",
        "data": rows,
        "model": body.get("model") or MODEL,
        "usage": {"prompt_tokens": used, "total_tokens": used},
    }


def _packed(vector: list[float]) -> str:
    """Little-endian floats of 32 bits, as base64."""
    numbers = array.array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
