"""`run`: run a model on the server, with progress, output files and receipt."""

from __future__ import annotations

import argparse
import contextlib
import functools
import mimetypes
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from sixfold import near_names
from sixfold.cli import receipt
from sixfold.cli.client import Document, NotFoundError, ServerClient
from sixfold.cli.terminal import CommandError, TerminalStyle, json_text, put_json
from sixfold.core.catalog.inputs import MEDIA_TYPES
from sixfold.core.catalog.text_values import from_text
from sixfold.core.humanize import size

_ID_TAIL = 8
# Characters that are replaced in the name of a file, and the longest parts of such a name.
_UNSAFE = re.compile(r"[^\w.-]")
_MAX_NAME, _MAX_SUFFIX = 150, 16
_MOUNTS = "_artifacts_mounts"
_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


def run(arguments: argparse.Namespace) -> int:
    """Run `run`; return 1 if the prediction did not succeed."""
    client = ServerClient.of(arguments)
    if arguments.list:
        _list(list(_services(client)), as_json=arguments.json)
        return 0
    if not arguments.model:
        raise CommandError(
            "No model was specified: run `sixfold run MODEL …`, for example `sixfold run ra1 prompt=…`; "
            "`sixfold run --list` lists the models"
        )
    _prepare_folder(arguments.output)
    names: list[str] = []
    service = _service(client, arguments.model, names)
    rows = None if service is None else service["inputs"]
    inputs = parse_inputs(client, arguments.model, rows, arguments.inputs)
    body = {"input": inputs, **_terms(client, arguments)}
    try:
        if arguments.quote:
            return _quote(client, arguments, body)
        began = time.monotonic()
        prediction = client.post("/api/containers/run", {"model": arguments.model, "wait": 0, **body})
    except NotFoundError:
        if service is None and (near := near_names.question(arguments.model, names)):
            raise CommandError(f"Model {arguments.model} not found; {near}") from None
        raise
    try:
        result = follow(client, prediction, began)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"\nThe run continues: follow it with `sixfold predictions {prediction['id']}`, "
            f"or cancel it with `sixfold predictions cancel {prediction['id']}`.\n"
        )
        raise
    paths = [path for path, _ in save(client, result, arguments.output)]
    print_result(result, paths, as_json=arguments.json)
    return 0 if result["status"] == "succeeded" else 1


def _terms(client: ServerClient, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of the request for hardware, variant and mounted files."""
    mounts: dict[str, str] = {}
    for text in arguments.mount:
        name, _, path = text.partition("=")
        if not name or not Path(path).is_file():
            raise CommandError(
                f"{text!r} must be NAME=FILE with an existing file, such as score.mid=./score.mid"
            )
        mounts[name] = client.upload(Path(path))
    options = {"hardware": arguments.hardware, "variant": arguments.variant, _MOUNTS: mounts}
    return {name: value for name, value in options.items() if value}


def _quote(client: ServerClient, arguments: argparse.Namespace, body: Mapping[str, Any]) -> int:
    price = client.post(f"/api/containers/{quote(arguments.model, safe='')}/quote", body)
    if arguments.json:
        put_json(price)
        return 0
    start = ", including the start of a worker" if price["cold"] else ""
    TerminalStyle().rows(
        [
            ("cost", f"about {_cost(price)}"),
            ("held", f"{price['hold_usd']} USD"),
            ("time", f"about {price['eta_seconds']:g} s{start}"),
        ]
    )
    return 0


def _cost(price: Mapping[str, Any]) -> str:
    cost, list_price = f"{price['price_usd']} USD", price.get("list_price")
    return f"{cost} (list price {list_price} USD)" if list_price else cost


def follow(client: ServerClient, prediction: Document, began: float) -> Document:
    """Wait for the end of a prediction and return it, with a progress bar on a terminal."""
    bar = receipt.ReceiptBar(TerminalStyle(sys.stderr))
    try:
        return client.follow(prediction, lambda current: bar.show(current, time.monotonic() - began))
    finally:
        bar.clear()


# -- inputs ----------------------------------------------------------------------------------------


def _services(client: ServerClient) -> Iterator[Document]:
    """Yield the models of the server and of the account; none if the server does not list them."""
    with contextlib.suppress(NotFoundError):
        for page in client.lists("/api/services"):
            yield from page["services"]


def _service(client: ServerClient, name: str, names: list[str]) -> Document | None:
    """Return a model of the server, or None if it is not listed; `names` receives the other names."""
    for row in _services(client):
        if row["service"] == name:
            return row
        names.append(row["service"])
    return None


def _list(services: list[Document], *, as_json: bool) -> None:
    if as_json:
        fields = ("description", "output_kind", "price", "available", "inputs")
        put_json(
            {"models": [{"model": row["service"]} | {name: row[name] for name in fields} for row in services]}
        )
        return
    paint = TerminalStyle()
    for row in services:
        note = (
            "" if row["available"] else paint.dim("  (unavailable: `sixfold doctor` shows how to enable it)")
        )
        paint.line(f"  {paint.bold(row['service'])}  {row['description']}{note}")
        paint.rows([(item["name"], describe_input(item)) for item in row["inputs"]], indent=4)
        paint.line()


def describe_input(item: Document) -> str:
    """Return the description of an input with its type and limits."""
    kind = item["type"]
    facts = [f"{kind}: @FILE or a URL" if kind in MEDIA_TYPES else kind]
    if item["required"]:
        facts.append("required")
    # A default may be a list, which is not hashable, so a set cannot be used.
    elif item.get("default") not in (None, ""):
        facts.append(f"default {_plain(item['default'])}")
    if item.get("choices"):
        facts.append("one of " + ", ".join(item["choices"]))
    if item.get("min") is not None and item.get("max") is not None:
        facts.append(f"{item['min']} to {item['max']}")
    return f"{item.get('description', '')} ({'; '.join(facts)})".strip()


def _plain(value: Any) -> str:
    """Return a default as it is typed on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, cast("list[Any]", value))) if isinstance(value, list) else str(value)


def parse_inputs(
    client: ServerClient, owner: str, rows: Sequence[Document] | None, arguments: Sequence[str]
) -> dict[str, Any]:
    """Return the inputs of `NAME=VALUE` arguments; files are uploaded after all names are checked.

    `rows` are the inputs of the model or workflow `owner`, or None if they are unknown.
    """
    texts: dict[str, str] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name:
            raise CommandError(f"{argument!r} must be NAME=VALUE, such as prompt='a lighthouse'")
        texts[name] = value
    types = {row["name"]: row["type"] for row in rows or ()}
    if rows is not None and texts.keys() - types.keys():
        types |= _alias_types(owner, types)
    if rows is not None and (unknown := [name for name in texts if name not in types]):
        listed = f"its inputs are {', '.join(types)}" if types else "it has no inputs"
        advice = (f"{name}; {near_names.question(name, types, listed)}" for name in unknown)
        raise CommandError(" ".join(f"{owner} does not have the input {each}" for each in advice))
    types |= _JSON_INPUTS.get(owner, {})
    return {name: _value(client, types.get(name), name, text) for name, text in texts.items()}


def _alias_types(model: str, types: Mapping[str, str]) -> dict[str, str]:
    """Return the types of other names of inputs, which the server accepts, but does not list."""
    # The import takes a second, and most commands use the listed names.
    from sixfold.app import catalog as app_catalog

    rows = app_catalog.models_document()["models"].get(model, {}).get("inputs", {})
    return {alias: types[name] for name in types for alias in rows.get(name, {}).get("aliases", ())}


def _value(client: ServerClient, kind: str | None, name: str, text: str) -> Any:
    if text.startswith("@") and (kind in MEDIA_TYPES or kind in ("string", None)):
        path = Path(text[1:]).expanduser()
        # A text such as a prompt may also begin with an at sign.
        if path.is_file() or kind != "string":
            if not path.exists():
                raise CommandError(f"{name}: file {path} does not exist")
            return client.upload(path)
    try:
        return _PARSERS.get(kind, str)(text)
    except ValueError:
        raise CommandError(f"{name} must be {_TYPE_NAMES[kind or '']} (got {text!r})") from None


def _boolean(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(text)
    return text.lower() in _TRUE


def _guess(text: str) -> Any:
    """Convert a value of a model that the server does not list, guessing its type."""
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?\d+\.\d+", text):
        return float(text)
    return {"true": True, "false": False}.get(text, text)


_PARSERS: Mapping[str | None, Callable[[str], Any]] = {
    "integer": int,
    "number": float,
    "boolean": _boolean,
    "sizes": functools.partial(from_text, "sizes"),
    "project": functools.partial(from_text, "project"),
    None: _guess,
}
# Inputs that the server lists as strings, but that a JSON body must not send as such.
_JSON_INPUTS = {"smart-resize": {"target_sizes": "sizes"}, "render": {"project": "project"}}
_TYPE_NAMES = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}


# -- outputs ---------------------------------------------------------------------------------------


def _prepare_folder(output: str | None) -> None:
    """Create or check the output folder before the run is charged."""
    if output and output.endswith("/"):
        Path(output).mkdir(parents=True, exist_ok=True)
    elif output and not Path(output).parent.is_dir():
        raise CommandError(f"Folder {Path(output).parent} for the output does not exist: create it first")


def save(client: ServerClient, prediction: Document, output_path: str | None) -> list[tuple[Path, int]]:
    """Save the output files, and text or JSON only with `-o`; return the paths and sizes in bytes."""
    output = prediction.get("output")
    files = list(outputs([output, prediction.get("outputs")]))
    if output is not None and output_path and not files:
        return [_save_data(prediction, output_path)]
    saved: list[tuple[Path, int]] = []
    for index, file in enumerate(files):
        path = _target(prediction, _suffix(file), output_path, (index, len(files)))
        saved.append((path, client.download(str(file["url"]), path)))
        _warn_of_format(path, _suffix(file))
    return saved


def _warn_of_format(path: Path, suffix: str) -> None:
    named, actual = (mimetypes.guess_type(f"file{end}")[0] for end in (path.suffix, suffix))
    if named and actual and named != actual:
        sys.stderr.write(
            f"sixfold: {path} contains {actual}, not {named}: rename it to {path.stem}{suffix}\n"
        )


def _save_data(prediction: Document, output_path: str) -> tuple[Path, int]:
    output = prediction["output"]
    text, suffix = (output, ".txt") if isinstance(output, str) else (json_text(output), ".json")
    path = _target(prediction, suffix, output_path, (0, 1))
    return path, path.write_bytes(text.encode("utf-8", "backslashreplace"))


def _suffix(file: Mapping[str, Any]) -> str:
    """Return the suffix for a file from its URL, or else from its content type."""
    suffix = Path(re.split(r"[?#]", file["url"], maxsplit=1)[0]).suffix
    suffix = suffix or mimetypes.guess_extension(file["content_type"]) or ""
    return _UNSAFE.sub("-", suffix)[:_MAX_SUFFIX]


def outputs(output: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every file in the output or outputs of a prediction."""
    pending = [output]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            if isinstance(fields.get("url"), str) and isinstance(fields.get("content_type"), str):
                yield fields
            else:
                pending += reversed(fields.values())
        elif isinstance(value, list):
            pending += reversed(cast("list[Any]", value))


def _target(prediction: Document, suffix: str, output_path: str | None, position: tuple[int, int]) -> Path:
    """Return the path for a file: that of `-o`, numbered if there are several, or one named after its run."""
    index, count = position
    number = f"-{index + 1}" if count > 1 else ""
    if output_path and not Path(output_path).is_dir() and not output_path.endswith("/"):
        path = Path(output_path)
        return path.with_name(f"{path.stem}{number}{path.suffix or suffix}")
    # The server chooses this name, so it must not have separators, and must not replace a file.
    name = f"{prediction['model']}-{prediction['id'][-_ID_TAIL:]}{number}"[-_MAX_NAME:]
    stem = _UNSAFE.sub("-", name).lstrip(".-")
    names = (f"{stem}{again}{suffix}" for again in ("", *(f"-{count}" for count in range(2, 100))))
    paths = (Path(output_path or ".") / name for name in names)
    if (free := next((path for path in paths if not path.exists()), None)) is None:
        raise CommandError(f"The files {stem}*{suffix} already exist: choose another name with -o")
    return free


def print_result(prediction: Document, paths: list[Path], *, as_json: bool) -> None:
    if as_json:
        put_json({**prediction, "files": [str(path) for path in paths]})
        return
    paint = TerminalStyle()
    show(paint, prediction, output=not paths)
    for path in paths:
        paint.line(f"  {paint.bold(str(path))}  {paint.dim(size(path.stat().st_size))}")


def show(paint: TerminalStyle, prediction: Document, *, output: bool = True) -> None:
    """Print a prediction: its receipt, its error and, if `output` is set, output that is text or JSON."""
    paint.line()
    engine = f"{prediction.get('engine')}, {prediction.get('quality')}"
    head = f"{paint.bold(str(prediction['model']))} {prediction['status']}"
    paint.line(f"  {head}  {paint.dim(engine)}  {paint.dim(str(prediction['id']))}")
    paint.line()
    receipt.draw(paint, prediction)
    paint.line()
    if prediction.get("error"):
        paint.line(f"  {prediction['error']}")
    if ignored := prediction.get("ignored"):
        paint.line(f"  Ignored: {', '.join(ignored)}")
    for each in prediction.get("ignored_inputs", ()):
        paint.line(f"  Ignored: {each['message']}")
    data = prediction.get("output")
    if output and data and not any(outputs(data)):
        if isinstance(data, str):
            paint.line(data)
        else:
            put_json(data)
    named_outputs: Document = prediction.get("outputs") or {}
    if values := {name: value for name, value in named_outputs.items() if not any(outputs(value))}:
        put_json(values)
