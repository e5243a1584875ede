"""Calls of a guardrail's HTTP hook, which receives the texts of a call and allows, changes or blocks them.

The request is signed according to Standard Webhooks, like webhooks, and sent through the guarded fetcher.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Literal, Protocol
from weakref import WeakValueDictionary

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import accounts
from sixfold.core.accounts.webhook_secrets import WebhookSecrets, signature
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.database import Database
from sixfold.core.gateway.guardrails.models import HookSettings, Stage
from sixfold.core.gateway.ports import GatewayRequest
from sixfold.core.input_limits import json_limits

# Maximum characters of texts that are sent, and maximum bytes that are read.
MAX_CHARS, _MAX_ANSWER = 4 * 2**20, 16 * 2**20
_MAX_MESSAGE = 300
# Concurrent calls of hooks for one account; further calls wait within the timeout of the hook. The fetcher
# has 64 slots for all accounts, so a slow hook of one account cannot occupy them all.
_PER_ACCOUNT = 8
_encode = msgspec.json.Encoder().encode


class GuardrailBlocked(errors.BadRequest):
    """A guardrail blocked this call."""

    code = "guardrail_blocked"


class GuardrailUnavailable(errors.SixfoldError):
    """The guardrail of this key did not respond, so the call was blocked."""

    status = 503
    code = "guardrail_unavailable"
    retry_after = 1


class HookSender(Protocol):
    """The methods of the guarded fetcher that hooks use."""

    def check_url(self, url: str) -> None:
        """Raise `FetchRefused` for a URL that is never allowed."""
        ...

    async def send(
        self, method: str, url: str, *, headers: Any, content: bytes, timeout_seconds: float, max_bytes: int
    ) -> Any:
        """Send one request; the response has a `status` and a `body`."""
        ...


class _HookAnswer(msgspec.Struct):
    action: Literal["allow", "change", "block"]
    texts: list[str] | None = None
    message: str = ""


_decode = msgspec.json.Decoder(_HookAnswer).decode


def check_url(sender: HookSender, url: str) -> None:
    """Raise `InvalidInput` if calls may not be sent to a URL."""
    try:
        sender.check_url(url)
    except errors.FetchRefused as refused:
        raise errors.InvalidInput.of("hook", f"hook.url: {refused.message}", refused.code) from refused


class GuardrailHooks:
    """Calls the hooks of guardrails."""

    def __init__(self, database: Database, sender: HookSender, secrets: WebhookSecrets) -> None:
        self.sender = sender
        self._database = database
        self._secrets = secrets
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def check(
        self, hook: HookSettings, stage: Stage, request: GatewayRequest, texts: Sequence[str], signer: str
    ) -> Sequence[str]:
        """Return the texts to use instead of the checked ones.

        `signer` is the account whose secret signs the request, or empty for the operator's secret.

        Raises `GuardrailBlocked`, and `GuardrailUnavailable` if the hook fails.
        """
        chars = sum(map(len, texts))
        if chars > MAX_CHARS:
            # Also if `on_failure` is `allow`: otherwise a caller could avoid the hook with a longer text.
            raise GuardrailBlocked(
                f"The guardrail blocked this {stage}: its hook accepts at most {MAX_CHARS:,} characters "
                f"of text (got {chars:,})"
            )
        try:
            answer = await self._call(hook, stage, request, texts, signer)
        except (
            errors.SixfoldError,
            msgspec.MsgspecError,
            RecursionError,
            UnicodeError,
            TimeoutError,
        ) as error:
            if hook.on_failure == "allow":
                return texts
            reason = _reason(error, hook)
            raise GuardrailUnavailable(
                f"The call was blocked because the guardrail's hook failed: {reason}"
            ) from error
        if answer.action == "block":
            message = answer.message.strip()[:_MAX_MESSAGE]
            raise GuardrailBlocked(f"The guardrail blocked this {stage}{f': {message}' if message else ''}")
        return texts if answer.texts is None or answer.action == "allow" else answer.texts

    async def _secret(self, account_id: str) -> str:
        if not account_id:
            operator = await self._database.read(accounts.operator(), snapshot=False)
            account_id = "" if operator is None else operator.id
        return await self._secrets.of(account_id)

    async def _call(
        self, hook: HookSettings, stage: Stage, request: GatewayRequest, texts: Sequence[str], signer: str
    ) -> _HookAnswer:
        document = {
            "type": f"guardrail.{stage}",
            "request_id": request.request_id,
            "account_id": request.account_id,
            "key_id": request.key_id,
            "endpoint": request.endpoint,
            "model": request.model,
            "stream": request.stream,
            "texts": texts,
        }
        secret = await self._secret(signer)
        # A character has up to four bytes.
        headers, body = await PARSER.run_large(4 * sum(map(len, texts)), _message, secret, document)
        # An account's slots exist only while the account has calls.
        slots = self._slots.setdefault(request.account_id, asyncio.Semaphore(_PER_ACCOUNT))
        async with asyncio.timeout(hook.timeout_seconds), slots:
            response = await self.sender.send(
                "POST",
                hook.url,
                headers=headers,
                content=body,
                timeout_seconds=hook.timeout_seconds,
                max_bytes=_MAX_ANSWER,
            )
        if response.status != 200:
            raise errors.FetchFailed(f"it returned status {response.status} instead of 200")
        answer = await PARSER.run_large(len(response.body), _parse, response.body)
        if answer.action == "change" and len(answer.texts or ()) != len(texts):
            raise errors.FetchFailed(f"it returned {len(answer.texts or ())} texts instead of {len(texts)}")
        return answer


def _parse(body: bytes) -> _HookAnswer:
    json_limits.DEFAULT.check(body)
    return _decode(body)


def _reason(error: Exception, hook: HookSettings) -> str:
    if isinstance(error, TimeoutError):
        return f"it took longer than {hook.timeout_seconds:g} seconds"
    return error.message if isinstance(error, errors.SixfoldError) else "its response cannot be parsed"


def _message(secret: str, document: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of a signed message."""
    body, message_id, timestamp = _encode(document), ids.new("msg"), int(time.time())
    headers = {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(secret, message_id, timestamp, body),
    }
    return headers, body
