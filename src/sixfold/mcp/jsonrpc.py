"""JSON-RPC 2.0 messages of MCP: parse requests, build results and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL = (
    -32700,
    -32600,
    -32601,
    -32602,
    -32603,
)
RESOURCE_NOT_FOUND = -32002
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022

# The first revision without a handshake, in which every request states its version.
LATEST = "2026-07-28"
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
VERSIONS = (*HANDSHAKE, LATEST)
VERSION_META = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_META = "io.modelcontextprotocol/clientCapabilities"
SERVER_META = "io.modelcontextprotocol/serverInfo"

JsonObject = dict[str, Any]
MessageId = str | int | None


class RpcError(Exception):
    """Raised for a protocol error; the message itself is invalid."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(message)


class RpcMessage(msgspec.Struct, frozen=True):
    """A message from a client. `method` is empty for the response to a request of this server.

    `has_id` is False for a notification, which is not answered.
    """

    method: str
    params: JsonObject
    id: MessageId = None
    has_id: bool = False
    result: Any = None


def read(document: object) -> RpcMessage:
    """Parse a message; raises `RpcError`."""
    message = fields(document)
    if not message:
        raise RpcError(INVALID_REQUEST, "A message must be a JSON object")
    if message.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'A message must have "jsonrpc": "2.0"')
    message_id: Any = message.get("id")
    if message_id is not None and (isinstance(message_id, bool) or not isinstance(message_id, str | int)):
        raise RpcError(INVALID_REQUEST, "id must be a string or an integer")
    method = message.get("method")
    if method is None and ("result" in message or "error" in message):
        return RpcMessage("", {}, message_id, has_id=True, result=message.get("result"))
    if not isinstance(method, str) or not method:
        raise RpcError(INVALID_REQUEST, "method must be a non-empty string")
    return RpcMessage(method, member(message, "params"), message_id, has_id="id" in message)


def member(container: JsonObject, name: str) -> JsonObject:
    """Return the object under a name, empty if it is missing; raises `RpcError` for any other value."""
    value = container.get(name)
    if value is not None and not isinstance(value, dict):
        raise RpcError(INVALID_PARAMS, f"{name} must be an object")
    return cast("JsonObject", value or {})


def fields(value: object) -> JsonObject:
    """Return a JSON object, or an empty one for any other value."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def result(message_id: MessageId, value: Mapping[str, Any]) -> JsonObject:
    """Build the response to a request."""
    return {"jsonrpc": "2.0", "id": message_id, "result": value}


def error(message_id: MessageId, failure: RpcError) -> JsonObject:
    body: JsonObject = {"code": failure.code, "message": failure.message}
    if failure.data is not None:
        body["data"] = failure.data
    return {"jsonrpc": "2.0", "id": message_id, "error": body}


def id_of(document: object) -> MessageId:
    """Return the id of an invalid message, if it has one."""
    message_id = fields(document).get("id")
    return message_id if isinstance(message_id, str | int) and not isinstance(message_id, bool) else None
