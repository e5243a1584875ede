"""JSON-RPC 2.0 as the tool protocol speaks it: requests in, results and errors out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL = (
    -32700,
    -32600,
    -32601,
    -32602,
    -32603,
)
RESOURCE_NOT_FOUND = -32002
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022

LATEST = "2026-07-28"  # the first revision without a handshake: every request says its version itself
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
VERSIONS = (*HANDSHAKE, LATEST)
VERSION_META = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_META = "io.modelcontextprotocol/clientCapabilities"
SERVER_META = "io.modelcontextprotocol/serverInfo"

Plain = dict[str, Any]
MessageId = str | int | None


class RpcError(Exception):
    """A protocol error: the request itself is wrong, and no tool can be asked."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class RpcMessage:
    """One message of a client. `method` is empty for the answer to something that we asked.

    `has_id` is false for a notification, which is not answered.
    """

    method: str
    params: Plain
    id: MessageId = None
    has_id: bool = False
    result: Any = None


def read(document: object) -> RpcMessage:
    """The message that a JSON value is; raises `RpcError`."""
    said = fields(document)
    if not said:
        raise RpcError(INVALID_REQUEST, "A message is a JSON object")
    if said.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'A message has "jsonrpc": "2.0"')
    message_id: Any = said.get("id")
    if message_id is not None and (isinstance(message_id, bool) or not isinstance(message_id, str | int)):
        raise RpcError(INVALID_REQUEST, "id must be a text or a whole number")
    method = said.get("method")
    if method is None and ("result" in said or "error" in said):
        return RpcMessage("", {}, message_id, has_id=True, result=said.get("result"))
    if not isinstance(method, str) or not method:
        raise RpcError(INVALID_REQUEST, "method must be a text")
    return RpcMessage(method, member(said, "params"), message_id, has_id="id" in said)


def member(said: Plain, name: str) -> Plain:
    """The object under a name, or an empty one where it is left out; raises `RpcError` for anything else."""
    value = said.get(name)
    if value is not None and not isinstance(value, dict):
        raise RpcError(INVALID_PARAMS, f"{name} must be an object")
    return cast("Plain", value or {})


def fields(value: object) -> Plain:
    """The object that a value is, or an empty one."""
    return cast("Plain", value) if isinstance(value, dict) else {}


def result(message_id: MessageId, value: Mapping[str, Any]) -> Plain:
    """The answer to a request."""
    return {"jsonrpc": "2.0", "id": message_id, "result": value}


def error(message_id: MessageId, failure: RpcError) -> Plain:
    """The answer to a request that is wrong."""
    said: Plain = {"code": failure.code, "message": failure.message}
    if failure.data is not None:
        said["data"] = failure.data
    return {"jsonrpc": "2.0", "id": message_id, "error": said}


def id_of(document: object) -> MessageId:
    """The id of a message that could not be read, as far as it has one."""
    found = fields(document).get("id")
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None
