"""Batches, their lines, and the port that runs a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from sixfold.core.database import Row, to_struct

BatchDialect = Literal["openai", "anthropic"]
BatchOutcome = Literal["completed", "failed", "expired", "cancelled"]
BatchState = Literal[
    "validating", "in_progress", "finalizing", "cancelling", "completed", "failed", "expired", "cancelled"
]
_decode_errors = msgspec.json.Decoder(list[dict[str, Any]]).decode
_decode_texts = msgspec.json.Decoder(dict[str, str]).decode


class BatchLimits(msgspec.Struct, frozen=True):
    """Limits of batches: of one input in lines and bytes, of one account, and of this server."""

    lines: int
    bytes: int
    unfinished: int
    concurrency: int
    lease_us: int


class Batch(msgspec.Struct, frozen=True):
    """A batch; times are in epoch µs, and `errors`, `metadata` and `headers` are JSON.

    `outcome` is the final state, once decided. Lines run with the rights of the key `key_id`, or of the
    current key of the OAuth grant `grant_id`.
    """

    id: str
    account_id: str
    credential_id: str
    key_id: str | None
    grant_id: str | None
    dialect: BatchDialect
    endpoint: str
    state: BatchState
    outcome: BatchOutcome | None
    input_file_id: str | None
    input_media: str
    metadata: str
    headers: str
    output_seconds: int | None
    total: int
    succeeded: int
    failed: int
    errors: str
    output_file_id: str | None
    error_file_id: str | None
    resume_at: int
    waiting_for: str | None
    created_at: int
    expires_at: int
    in_progress_at: int | None
    finalizing_at: int | None
    cancelling_at: int | None
    ended_at: int | None
    # The id of the background response that the batch creates, or None for a batch of a client.
    response_id: str | None
    # The blob with the requests, if it is read to run them.
    input_blob: str = ""

    @property
    def error_list(self) -> list[dict[str, Any]]:
        """The errors that ended the batch, each with `code`, `line`, `message` and `param`."""
        return _decode_errors(self.errors)

    @property
    def metadata_map(self) -> Mapping[str, str]:
        """The metadata that the client has set."""
        return _decode_texts(self.metadata)

    @property
    def header_map(self) -> Mapping[str, str]:
        """The headers with which each line is sent."""
        return _decode_texts(self.headers)


def from_row(row: Row) -> Batch:
    """Build a batch from a row; the counts of an unfinished batch are computed from its lines."""
    values = dict(row)
    fields: dict[str, Any] = {name: values[name] for name in Batch.__struct_fields__ if name in values}
    fields |= {name: values.get(name) or "" for name in ("credential_id", "input_blob")}
    if values["ended_at"] is None and "lines_succeeded" in values:
        fields |= {"succeeded": values["lines_succeeded"], "failed": values["lines_failed"]}
    return Batch(**fields)


class LineProblem(msgspec.Struct, frozen=True):
    """An error in an invalid line of an input."""

    line: int
    code: str
    message: str
    param: str | None = None
    custom_id: str | None = None


class ClaimedLine(msgspec.Struct, frozen=True):
    """A line that this server runs, with the position of its request in the batch's input.

    `tries` is the number of earlier runs without a final answer; `attempt` distinguishes the runs whose
    answers are stored for their `Idempotency-Key`.
    """

    number: int
    custom_id: str
    start: int
    length: int
    tries: int
    attempt: int


def claimed(row: Row) -> ClaimedLine:
    return to_struct(ClaimedLine, row)


class LineCall(msgspec.Struct, frozen=True):
    """A request that runs with the key `key_id`, which is empty for the operator on the local socket."""

    key_id: str
    endpoint: str
    headers: Mapping[str, str]
    body: bytes
    idempotency_key: str


class LineReply(msgspec.Struct, frozen=True):
    """The response to a line.

    `scope` is the id under which the response is stored for its `Idempotency-Key`, or empty. A `permanent`
    error recurs until the server's configuration changes.
    """

    status: int
    request_id: str
    body: bytes
    retry_after: int = 0
    permanent: bool = False
    scope: str = ""


class LineRunner(Protocol):
    """Runs lines in the same way as the routes of the API: with the same checks, limits and charges."""

    @property
    def endpoints(self) -> frozenset[str]:
        """The paths that lines may name."""
        ...

    async def run(self, call: LineCall) -> LineReply:
        """Return the response to a request; raises only if it is canceled."""
        ...

    async def refund(self, scope: str, body: bytes) -> None:
        """Refund the gateway call of a line whose response, stored under the id `scope`, was lost."""
        ...

    async def refund_canceled(self, scope: str, body: bytes, response_id: str) -> None:
        """Refund a canceled background response, unless it is stored or may have called tools."""
        ...
