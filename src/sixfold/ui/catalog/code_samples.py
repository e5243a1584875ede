"""Code samples of a request in curl, Python, JavaScript and the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pprint import pformat
from typing import Any
from urllib.parse import quote

import msgspec

_RUN = "/api/containers/run"
_WIDTH = 84
_NO_OPTIONS: Mapping[str, str] = {}


class Sample(msgspec.Struct, frozen=True):
    """A code sample; `name` is the label of its tab."""

    name: str
    text: str


def build(
    base_url: str, model: str, inputs: Mapping[str, Any], options: Mapping[str, str] = _NO_OPTIONS
) -> tuple[Sample, ...]:
    """Return the samples for a run of `model`; `options` contains its hardware and variant."""
    url, body = f"{base_url}{_RUN}", {"model": model, "input": dict(inputs), **options}
    return (
        Sample("curl", _curl(url, body)),
        Sample("Python", _python(url, body)),
        Sample("JavaScript", _javascript(url, body)),
        Sample("Terminal", _terminal(model, inputs, options)),
    )


def _curl(url: str, body: Mapping[str, Any]) -> str:
    text = json.dumps(body, ensure_ascii=False, indent=2).replace("'", "'\\''")
    return (
        f"curl {url} \\\n"
        '  -H "Authorization: Bearer $SIXFOLD_API_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d '{text}'"
    )


def _python(url: str, body: Mapping[str, Any]) -> str:
    return (
        "import os\n\nimport httpx\n\n"
        "response = httpx.post(\n"
        f'    "{url}",\n'
        '    headers={"Authorization": f"Bearer {os.environ[\'SIXFOLD_API_KEY\']}"},\n'
        f"    json={_indent(pformat(body, width=_WIDTH, sort_dicts=False))},\n"
        "    timeout=600,\n"
        ")\n"
        'print(response.raise_for_status().json()["output"])'
    )


def _javascript(url: str, body: Mapping[str, Any]) -> str:
    return (
        f'const response = await fetch("{url}", {{\n'
        '  method: "POST",\n'
        "  headers: {\n"
        "    Authorization: `Bearer ${process.env.SIXFOLD_API_KEY}`,\n"
        '    "Content-Type": "application/json",\n'
        "  },\n"
        f"  body: JSON.stringify({json.dumps(body, ensure_ascii=False, indent=2)}),\n"
        "});\n"
        "console.log((await response.json()).output);"
    )


def _terminal(model: str, inputs: Mapping[str, Any], options: Mapping[str, str]) -> str:
    arguments = [f"{name}={_quoted(value)}" for name, value in inputs.items()]
    arguments += [f"--{name} {value}" for name, value in options.items()]
    return " \\\n  ".join([f"sixfold run {quote(model, safe=':')}", *arguments])


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "'" + text.replace("'", "'\\''") + "'" if not text.isalnum() else text


def _indent(text: str) -> str:
    return text.replace("\n", "\n    ")
