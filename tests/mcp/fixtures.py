"""Tools, resources and prompts that the official conformance suite requires: fixtures, not product."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from sixfold import errors
from sixfold.core.accounts.rights import ANY
from sixfold.mcp import jsonrpc
from sixfold.mcp.jsonrpc import JsonObject, RpcError
from sixfold.mcp.server import McpServer, ServerFeature, ToolInvocation
from sixfold.mcp.tools import McpTool, Toolbox, ToolOutcome
from tests.harness import image_files

DRAFT = "https://json-schema.org/draft/2020-12/schema"
NO_ARGUMENTS: JsonObject = {"type": "object", "properties": {}}


def picture() -> str:
    """Return one red pixel as a PNG in base64."""
    return base64.b64encode(image_files.encode(Image.new("RGB", (1, 1), "red"))).decode()


def sound() -> str:
    """Return a hundredth of a second of silence as a WAV in base64."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(160))
    return base64.b64encode(out.getvalue()).decode()


def text(message: str) -> JsonObject:
    return {"type": "text", "text": message}


IMAGE = {"type": "image", "data": picture(), "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": sound(), "mimeType": "audio/wav"}
EMBEDDED = {
    "type": "resource",
    "resource": {
        "uri": "test://embedded-resource",
        "mimeType": "text/plain",
        "text": "This is an embedded resource content.",
    },
}
MIXED = {
    "type": "resource",
    "resource": {
        "uri": "test://mixed-content-resource",
        "mimeType": "application/json",
        "text": '{"test":"data","value":123}',
    },
}


def showing(name: str, *content: JsonObject) -> McpTool:
    """Return a tool with constant content."""

    async def run(call: ToolInvocation, inputs: JsonObject) -> ToolOutcome:
        del call, inputs
        return ToolOutcome({}, content)

    return McpTool(name, name, f"Gives fixed content: {name}.", NO_ARGUMENTS, run, access=ANY)


async def log(call: ToolInvocation, inputs: JsonObject) -> ToolOutcome:
    del inputs
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        call.notify("notifications/message", {"level": "info", "data": line})
        # The suite requires separate times.
        await asyncio.sleep(0.05)
    return ToolOutcome({}, (text("Logged three times."),))


async def progress(call: ToolInvocation, inputs: JsonObject) -> ToolOutcome:
    """Report three steps of progress."""
    del inputs
    for percent in (0, 50, 100):
        call.progress(percent, 100)
        # The suite requires separate times.
        await asyncio.sleep(0.05)
    return ToolOutcome({}, (text("Done."),))


async def fail(call: ToolInvocation, inputs: JsonObject) -> ToolOutcome:
    del call, inputs
    raise errors.BadRequest("This tool intentionally returns an error for testing")


async def sample(call: ToolInvocation, inputs: JsonObject) -> ToolOutcome:
    """Request a completion from the client's model."""
    question = {"role": "user", "content": text(inputs["prompt"])}
    answer = await call.ask("sampling/createMessage", {"messages": [question], "maxTokens": 100})
    return ToolOutcome({}, (text(f"LLM response: {answer['content']['text']}"),))


def eliciting(name: str, schema: JsonObject, arguments: JsonObject = NO_ARGUMENTS) -> McpTool:
    """Return a tool that requests input from the user."""

    async def run(call: ToolInvocation, inputs: JsonObject) -> ToolOutcome:
        request = {"message": inputs.get("message", "Please tell"), "requestedSchema": schema}
        answer = await call.ask("elicitation/create", request)
        message = (
            f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content'))}"
        )
        return ToolOutcome({}, (text(message),))

    return McpTool(name, name, "Asks the person.", arguments, run, access=ANY, streams=True)


def _object(**properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties, "required": []}


USER = {
    **_object(
        username={"type": "string", "description": "User's response"},
        email={"type": "string", "description": "User's email address"},
    ),
    "required": ["username", "email"],
}
DEFAULTS = _object(
    name={"type": "string", "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    verified={"type": "boolean", "default": True},
)
OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
ENUMS = _object(
    untitledSingle={"type": "string", "enum": OPTIONS},
    titledSingle={"type": "string", "oneOf": TITLED},
    legacyEnum={
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    untitledMulti={"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    titledMulti={"type": "array", "items": {"anyOf": TITLED}},
)
SCHEMA = {
    "$schema": DRAFT,
    "type": "object",
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}


def tools() -> list[McpTool]:
    """Return every tool that the suite calls."""
    asks = {**_object(message={"type": "string"}), "required": ["message"]}
    prompted = {**_object(prompt={"type": "string"}), "required": ["prompt"]}
    return [
        showing("test_simple_text", text("This is a simple text response for testing.")),
        showing("test_image_content", IMAGE),
        showing("test_audio_content", AUDIO),
        showing("test_embedded_resource", EMBEDDED),
        showing("test_multiple_content_types", text("Multiple content types test:"), IMAGE, MIXED),
        McpTool(
            "test_tool_with_logging", "Log", "Logs on the way.", NO_ARGUMENTS, log, access=ANY, streams=True
        ),
        McpTool(
            "test_tool_with_progress",
            "Steps",
            "Tells its steps.",
            NO_ARGUMENTS,
            progress,
            access=ANY,
            streams=True,
        ),
        McpTool("test_error_handling", "Fail", "Always refuses.", NO_ARGUMENTS, fail, access=ANY),
        McpTool(
            "test_sampling", "Sample", "Asks the client's model.", prompted, sample, access=ANY, streams=True
        ),
        eliciting("test_elicitation", USER, asks),
        eliciting("test_elicitation_sep1034_defaults", DEFAULTS),
        eliciting("test_elicitation_sep1330_enums", ENUMS),
        McpTool(
            "json_schema_2020_12_tool",
            "Schema",
            "Has a schema of 2020-12.",
            SCHEMA,
            showing("x", text("ok")).run,
            access=ANY,
        ),
    ]


# -- resources and prompts -------------------------------------------------------------------------

STATIC: Mapping[str, JsonObject] = {
    "test://static-text": {
        "mimeType": "text/plain",
        "text": "This is the content of the static text resource.",
    },
    "test://static-binary": {"mimeType": "image/png", "blob": picture()},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watched."},
}


async def list_resources(params: JsonObject, call: ToolInvocation) -> JsonObject:
    del params, call
    return {
        "resources": [
            {"uri": uri, "name": uri, "description": "A fixture.", "mimeType": row["mimeType"]}
            for uri, row in STATIC.items()
        ]
    }


async def list_templates(params: JsonObject, call: ToolInvocation) -> JsonObject:
    del params, call
    return {"resourceTemplates": [{"uriTemplate": "test://template/{id}/data", "name": "template"}]}


async def read_resource(params: JsonObject, call: ToolInvocation) -> JsonObject:
    """Return a fixed resource, or one of the template."""
    del call
    uri = str(params.get("uri"))
    if uri.startswith("test://template/") and uri.endswith("/data"):
        number = uri.split("/")[3]
        data = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}]}
    if uri not in STATIC:
        raise RpcError(jsonrpc.RESOURCE_NOT_FOUND, "There is no such resource")
    return {"contents": [{"uri": uri, **STATIC[uri]}]}


async def nothing(params: JsonObject, call: ToolInvocation) -> JsonObject:
    """Accept the request and return an empty result."""
    del params, call
    return {}


PROMPTS: Mapping[str, Sequence[str]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
}


async def list_prompts(params: JsonObject, call: ToolInvocation) -> JsonObject:
    del params, call
    rows = [
        {
            "name": name,
            "description": "A fixture.",
            "arguments": [{"name": argument, "required": True} for argument in arguments],
        }
        for name, arguments in PROMPTS.items()
    ]
    return {"prompts": rows}


async def get_prompt(params: JsonObject, call: ToolInvocation) -> JsonObject:
    """Return one prompt with its arguments filled in."""
    del call
    inputs: Mapping[str, str] = params.get("arguments") or {}
    match params.get("name"):
        case "test_simple_prompt":
            content = [text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            content = [text(f"Prompt with arguments: arg1='{inputs['arg1']}', arg2='{inputs['arg2']}'")]
        case "test_prompt_with_embedded_resource":
            message = {
                "uri": inputs["resourceUri"],
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            }
            content = [
                {"type": "resource", "resource": message},
                text("Please process the embedded resource above."),
            ]
        case "test_prompt_with_image":
            content = [IMAGE, text("Please analyze the image above.")]
        case _:
            raise RpcError(jsonrpc.INVALID_PARAMS, "There is no such prompt")
    return {"messages": [{"role": "user", "content": part} for part in content]}


async def complete(params: JsonObject, call: ToolInvocation) -> JsonObject:
    del params, call
    return {"completion": {"values": [], "hasMore": False}}


def server() -> McpServer:
    """Return the product's own server, with fixtures in place of the product's tools."""
    resources = ServerFeature(
        {"resources": {"subscribe": True, "listChanged": False}, "completions": {}},
        {
            "resources/list": list_resources,
            "resources/templates/list": list_templates,
            "resources/read": read_resource,
            "resources/subscribe": nothing,
            "resources/unsubscribe": nothing,
            "completion/complete": complete,
        },
        access=ANY,
    )
    prompts = ServerFeature(
        {"prompts": {}}, {"prompts/list": list_prompts, "prompts/get": get_prompt}, access=ANY
    )
    return McpServer([Toolbox(tools()).feature(), resources, prompts], "Fixtures.")
