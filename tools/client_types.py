"""Generate the types of the Python client and of the TypeScript client from the OpenAPI documents.

    python -m tools.client_types          # rewrite the files
    python -m tools.client_types --check  # exit with 1 if a file differs; a part of `make lint`

The Python types are those that the asynchronous client uses. `SYNCHRONOUS` generates the synchronous one.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
import keyword
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from sixfold.app import catalog
from tests.api.app_fixture import running_app

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src/sixfold/client"
TYPESCRIPT = ROOT / "clients/typescript"
# The documents of Sixfold's APIs. The compatible APIs are used through the clients of their vendors.
DOCUMENTS = ("platform", "media", "image", "hosting", "memory", "workflows")
# JSON bodies and query strings without a component name, by the name of their Python type.
BODIES = {
    "POST /api/search": "SearchBody",
    "POST /api/pages": "NewPageBody",
    "PATCH /api/pages/{slug}": "PageChangesBody",
    "POST /api/links/{slug}": "LinkBody",
    "POST /api/timeline/{slug}": "TimelineEntryBody",
}
QUERIES = {
    "GET /api/pages": "PagesQuery",
    "GET /api/backlinks/{slug}": "BacklinksQuery",
    "GET /api/traverse/{slug}": "TraverseQuery",
    "GET /api/timeline/{slug}": "TimelineQuery",
    "GET /api/containers/predictions": "PredictionsQuery",
}
SYNCHRONOUS = (
    (r"\basync def\b", "def"),
    (r"\basync with\b", "with"),
    (r"\basync for\b", "for"),
    (r"\bawait asyncio\.sleep\b", "time.sleep"),
    (r"\bawait ", ""),
    (r"\bimport asyncio\b", "import time"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bhttpx\.AsyncClient\b", "httpx.Client"),
    (r"\bAsyncClient\b", "Client"),
    (r"\basync_(client|memory|resources|transport|workflows)\b", r"sync_\1"),
    (r"\bAsync(\w+)\b", r"Sync\1"),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\baclose\b", "close"),
    (r"\baiter_", "iter_"),
    (r"\baread\b", "read"),
    (r"\basynchronous\b", "synchronous"),
    (r"\bAn asynchronous\b", "A synchronous"),
    (r"\bAn synchronous\b", "A synchronous"),
)
QUOTES = '"""'
Node = Mapping[str, Any]
TYPING = ("Any", "Literal", "NotRequired", "TypedDict")
_PYTHON = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_TYPESCRIPT = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}


def documents() -> dict[str, Any]:
    """Return the OpenAPI documents of a server with all APIs."""

    async def read() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            async with running_app(Path(folder), catalog.models_document(), workers=0) as app:
                paths = {name: f"/openapi/{name}.json" for name in DOCUMENTS}
                return {name: (await app.client.get(path)).json() for name, path in paths.items()}

    return asyncio.run(read())


def operations(document: Node) -> Iterator[tuple[str, Node]]:
    """Yield each operation as its method and path, and its description."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def component(reference: str) -> str:
    """Return the component's name at the end of a reference."""
    return reference.rpartition("/")[2]


def alternatives(schema: Node) -> list[Node]:
    """Return the alternatives of a union, or a list with the schema itself."""
    if "anyOf" in schema and "properties" not in schema:
        return cast("list[Node]", schema["anyOf"])
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": kind} for kind in schema["type"]]
    return [schema]


# -- Python ------------------------------------------------------------------------------------------


def python_type(schema: Node) -> str:
    """Return the annotation of a schema; objects without a component are dictionaries."""
    union = list(dict.fromkeys(_python_type(each) for each in alternatives(schema)))
    return "Any" if "Any" in union else " | ".join(union)


def _python_type(schema: Node) -> str:
    if "$ref" in schema:
        return component(schema["$ref"])
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    match schema.get("type"):
        case "array":
            return f"list[{python_type(schema.get('items', {}))}]"
        case "object":
            extra = schema.get("additionalProperties")
            return f"dict[str, {python_type(extra) if isinstance(extra, Mapping) else 'Any'}]"
        case kind:
            return _PYTHON.get(str(kind), "Any")


def typed_dict(name: str, text: str, properties: Node, required: set[str]) -> str:
    """Return the class of an object."""
    lines = [f"class {name}(TypedDict):", *([f'    """{text}"""', ""] if text else ())]
    for field, schema in properties.items():
        if not field.isidentifier() or keyword.iskeyword(field):
            continue
        kind = python_type(schema)
        lines.append(f"    {field}: {kind if field in required else f'NotRequired[{kind}]'}")
    return "\n".join(lines)


def python_classes(document: Node, owned: Mapping[str, Node]) -> dict[str, str]:
    """Return the classes of one document by name, without those that an earlier document has already."""
    classes: dict[str, str] = {}
    for name, schema in sorted(document["components"]["schemas"].items()):
        if owned.get(name) == schema:
            continue
        if schema.get("type") == "object" and schema.get("properties"):
            text = str(schema.get("description") or "").split("\n")[0].rstrip(".")
            required = set(schema.get("required", ()))
            classes[name] = typed_dict(name, text and f"{text}.", schema["properties"], required)
        else:
            classes[name] = f"{name} = {python_type(schema)}"
    for operation, details in operations(document):
        if operation in BODIES:
            schema = details["requestBody"]["content"]["application/json"]["schema"]
            required = set(schema.get("required", ()))
            in_path = {each["name"] for each in details["parameters"] if each["in"] == "path"}
            properties = {key: each for key, each in schema["properties"].items() if key not in in_path}
            text = f"The body of `{operation}`."
            classes[BODIES[operation]] = typed_dict(BODIES[operation], text, properties, required)
        if operation in QUERIES:
            rows = [each for each in details["parameters"] if each["in"] == "query"]
            required = {each["name"] for each in rows if each["required"]}
            properties = {each["name"]: each["schema"] for each in rows}
            text = f"The query string of `{operation}`."
            classes[QUERIES[operation]] = typed_dict(QUERIES[operation], text, properties, required)
    return classes


def used_names(classes: Mapping[str, str], code: str) -> set[str]:
    """Return the names of classes that the code uses, and of those that their fields use."""
    names: set[str] = set()
    words = set(re.findall(r"\w+", code))
    while new := (words & classes.keys()) - names:
        names |= new
        words = set(re.findall(r"\w+", "\n".join(classes[each] for each in new)))
    return names


def python_modules(openapi: Mapping[str, Node], code: str) -> dict[str, str]:
    """Return the modules with the types that the code of the client uses, by name."""
    owned: dict[str, Node] = {}
    modules: dict[str, dict[str, str]] = {}
    for name, document in openapi.items():
        modules[name] = python_classes(document, owned)
        owned = {**document["components"]["schemas"], **owned}
    every = {key: text for classes in modules.values() for key, text in classes.items()}
    used = used_names(every, code)
    result: dict[str, str] = {}
    for name, classes in modules.items():
        body = "\n\n\n".join(text for key, text in classes.items() if key in used)
        imports = "".join(
            f"from sixfold.client.types.{other} import {key}\n"
            for other in result
            for key in modules[other]
            if key not in classes and re.search(rf"\b{key}\b", body)
        )
        names = [each for each in TYPING if re.search(rf"\b{each}\b", body)]
        title = f"Types of the {name} API, generated by `tools/client_types.py` from its OpenAPI document."
        head = f"from __future__ import annotations\n\nfrom typing import {', '.join(names)}\n"
        if body:
            result[name] = f"{QUOTES}{title}{QUOTES}\n\n{head}\n{imports}\n\n{body}\n"
    return result


def synchronous(text: str) -> str:
    """Return the synchronous form of an asynchronous module."""
    for pattern, replacement in SYNCHRONOUS:
        text = re.sub(pattern, replacement, text)
    head, _, rest = text.partition("\n")
    note = "Generated by `tools/client_types.py` from the module of the asynchronous client; edit that one."
    return f"{head.removesuffix(QUOTES)}\n\n{note}\n{QUOTES}\n{rest}"


# -- TypeScript --------------------------------------------------------------------------------------


def script_type(schema: Node, prefix: str) -> str:
    """Return the TypeScript type of a schema; `prefix` names its document."""
    union = list(dict.fromkeys(_script_type(each, prefix) for each in alternatives(schema)))
    return "unknown" if "unknown" in union else " | ".join(union)


def _script_type(schema: Node, prefix: str) -> str:
    if "$ref" in schema:
        return f'{prefix}["{component(schema["$ref"])}"]'
    if "enum" in schema:
        return " | ".join(map(json.dumps, schema["enum"]))
    match schema.get("type"):
        case "array":
            return f"Array<{script_type(schema.get('items', {}), prefix)}>"
        case "object":
            return _script_object(schema, prefix)
        case "string" if schema.get("format") == "binary":
            return "Blob"
        case kind:
            return _TYPESCRIPT.get(str(kind), "unknown")


def _script_object(schema: Node, prefix: str) -> str:
    required = set(schema.get("required", ()))
    fields = [
        f'"{name}"{"" if name in required else "?"}: {script_type(each, prefix)}'
        for name, each in schema.get("properties", {}).items()
    ]
    extra = schema.get("additionalProperties")
    if not fields:
        value = script_type(extra, prefix) if isinstance(extra, Mapping) else "unknown"
        return f"Record<string, {value}>"
    return f"{{ {'; '.join(fields)} }}"


def script_operation(operation: Node, prefix: str) -> str:
    """Return the type of an operation: its parameters, its body and its response."""
    parts: list[str] = []
    for place in ("path", "query"):
        rows = [each for each in operation["parameters"] if each["in"] == place]
        properties = {each["name"]: each["schema"] for each in rows}
        required = [each["name"] for each in rows if each["required"]]
        if rows:
            schema = {"type": "object", "properties": properties, "required": required}
            optional = "" if required else "?"
            parts.append(f"{place}{optional}: {script_type(schema, prefix)}")
    contents = operation.get("requestBody", {}).get("content", {})
    bodies = [_script_body(kind, each["schema"], prefix) for kind, each in contents.items()]
    if bodies:
        parts.append(f"body: {' | '.join(dict.fromkeys(bodies))}")
    results = [
        script_type(content["schema"], prefix) if kind == "application/json" else "Response"
        for status, response in operation["responses"].items()
        if status.startswith("2")
        for kind, content in response.get("content", {"": {"schema": {"type": "null"}}}).items()
    ]
    parts.append(f"response: {' | '.join(dict.fromkeys(results)) or 'null'}")
    return f"{{ {'; '.join(parts)} }}"


def _script_body(kind: str, schema: Node, prefix: str) -> str:
    if kind == "application/json":
        return script_type(schema, prefix)
    return "FormData" if kind == "multipart/form-data" else "Blob"


def typescript(openapi: Mapping[str, Node]) -> str:
    """Return the declarations of all operations."""
    lines = ["// Generated by tools/client_types.py from the OpenAPI documents of the server.", ""]
    rows: dict[str, str] = {}
    for name, document in openapi.items():
        prefix = f"{name.capitalize()}Schemas"
        lines.append(f"export interface {prefix} {{")
        for component_name, schema in sorted(document["components"]["schemas"].items()):
            lines.append(f'  "{component_name}": {script_type(schema, prefix)};')
        lines += ["}", ""]
        rows |= {key: script_operation(operation, prefix) for key, operation in operations(document)}
    lines.append("export interface Operations {")
    lines += [f'  "{key}": {kind};' for key, kind in rows.items()]
    return "\n".join([*lines, "}", ""])


# -- files -------------------------------------------------------------------------------------------


def format_code(text: str) -> str:
    """Return Python code in the project's layout."""
    ruff = [sys.executable, "-m", "ruff"]
    name = ["--stdin-filename", str(PACKAGE / "generated.py"), "-"]
    for command in (["check", "--fix-only", "--quiet"], ["format"]):
        text = subprocess.run(
            [*ruff, *command, *name], input=text, capture_output=True, text=True, check=True
        ).stdout
    return text


def files() -> dict[Path, str]:
    """Return the content of every generated file by its path."""
    openapi = documents()
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.glob("async_*.py"))}
    modules = python_modules(openapi, "\n".join(sources.values()))
    generated = {PACKAGE / "types" / f"{name}.py": format_code(text) for name, text in modules.items()}
    for path, text in sources.items():
        target = path.with_name(path.name.replace("async_", "sync_"))
        generated[target] = format_code(synchronous(text))
    return {**generated, TYPESCRIPT / "operations.d.ts": typescript(openapi)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    arguments = parser.parse_args()
    differences = 0
    for path, text in files().items():
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if old == text:
            continue
        differences += 1
        if arguments.check:
            name = str(path.relative_to(ROOT))
            before, after = (each.splitlines(keepends=True) for each in (old, text))
            sys.stdout.writelines(difflib.unified_diff(before, after, name, name))
        else:
            path.write_text(text, encoding="utf-8")
    return 1 if arguments.check and differences else 0


if __name__ == "__main__":
    sys.exit(main())
