"""`workflow`: list, show, run, import, validate and verify workflows."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from urllib.parse import quote

from sixfold import near_names
from sixfold.cli import run as runs
from sixfold.cli.client import Document, NotFoundError, ServerClient
from sixfold.cli.terminal import CommandError, TerminalStyle, put_json

_PATH = "/api/graph/spaces"


def list_spaces(arguments: argparse.Namespace) -> int:
    """Run `workflow list`: print the workflows and their inputs."""
    client = ServerClient.of(arguments)
    spaces = [space for page in client.lists(_PATH) for space in page["spaces"]]
    if arguments.json:
        put_json({"spaces": spaces, "success": True})
        return 0
    rows = [(space["slug"], space["kind"], str(space["nodeCount"]), _inputs(space)) for space in spaces]
    TerminalStyle().table(("workflow", "kind", "nodes", "inputs"), rows)
    return 0


def show(arguments: argparse.Namespace) -> int:
    """Run `workflow show`: print a workflow and its inputs."""
    space = _space(ServerClient.of(arguments), arguments.slug)
    if arguments.json:
        put_json(space)
        return 0
    paint = TerminalStyle()
    paint.line(f"  {paint.bold(space['name'])}  {space['description']}")
    checked = space["verification"]
    facts = [("kind", space["kind"]), ("nodes", str(space["nodeCount"])), ("checked", checked["status"])]
    paint.rows([*facts, *((row["name"], runs.describe_input(row)) for row in space["apiInputs"] or ())])
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Run `workflow run`; return 1 if the run did not succeed."""
    client = ServerClient.of(arguments)
    slug, temporary = _slug(client, arguments.slug)
    space = _space(client, slug)
    inputs = runs.parse_inputs(client, f"Workflow {slug}", space["apiInputs"] or (), arguments.inputs)
    began = time.monotonic()
    try:
        order = {"input": inputs, "wait": 0}
        prediction = client.post(f"{_PATH}/{quote(slug, safe='')}/run", order)
        result = runs.follow(client, prediction, began)
    finally:
        if temporary:
            client.ask("DELETE", f"{_PATH}/{quote(slug, safe='')}")
    paths = [path for path, _ in runs.save(client, result, arguments.output)]
    runs.print_result(result, paths, as_json=arguments.json)
    return 0 if result["status"] == "succeeded" else 1


def import_file(arguments: argparse.Namespace) -> int:
    """Run `workflow import`: create a workflow from a file, and print the reasons if it cannot run."""
    client = ServerClient.of(arguments)
    space = _import(client, Path(arguments.file), arguments.name)
    _print(arguments, space)
    if not arguments.json:
        _print_validation(client.post("/api/graph/validate", {"workflow": space["workflow"]}))
    return 0


def rename(arguments: argparse.Namespace) -> int:
    """Run `workflow rename`: rename a workflow."""
    client = ServerClient.of(arguments)
    path = _path(client, arguments.slug)
    return _print(arguments, client.patch(path, {"name": arguments.name}))


def copy(arguments: argparse.Namespace) -> int:
    """Run `workflow copy`: copy a built-in workflow or one of the account."""
    client = ServerClient.of(arguments)
    body = {"name": arguments.name} if arguments.name else {}
    return _print(arguments, client.post(f"{_path(client, arguments.slug)}/duplicate", body))


def remove(arguments: argparse.Namespace) -> int:
    """Run `workflow remove`: delete a workflow."""
    client = ServerClient.of(arguments)
    client.delete(_path(client, arguments.slug))
    if arguments.json:
        put_json({"removed": arguments.slug})
    else:
        TerminalStyle().line(f"  deleted {arguments.slug}")
    return 0


def _path(client: ServerClient, slug: str) -> str:
    _space(client, slug)  # the error of a missing workflow names similar ones
    return f"{_PATH}/{quote(slug, safe='')}"


def _print(arguments: argparse.Namespace, workflow: Document) -> int:
    if arguments.json:
        put_json(workflow)
        return 0
    facts = [
        ("workflow", workflow["slug"]),
        ("name", workflow["name"]),
        ("nodes", str(workflow["nodeCount"])),
    ]
    TerminalStyle().rows([*facts, ("inputs", _inputs(workflow))])
    return 0


def validate(arguments: argparse.Namespace) -> int:
    """Run `workflow validate`: print the errors of a workflow file; return 1 if it cannot run."""
    from sixfold.core.workflows import image_metadata
    from sixfold.errors import BadRequest

    path = Path(arguments.file)
    try:
        workflow = image_metadata.read(path.read_bytes())
    except (OSError, BadRequest) as error:
        raise CommandError(f"{path} is not a workflow ({error})") from None
    result = ServerClient.of(arguments).post("/api/graph/validate", {"workflow": workflow})
    if arguments.json:
        put_json(result)
    else:
        _print_validation(result)
    return 0 if result["valid"] else 1


def _print_validation(result: Document) -> None:
    paint = TerminalStyle()
    for line in (*_faults(result["errors"]), *_model_run_lines(result), _verdict(result)):
        paint.line(f"  {line}")


def _faults(errors: list[Document]) -> list[str]:
    """Return the messages of errors, each once for all nodes with this error."""
    alike: dict[tuple[str, str], list[str]] = {}
    for fault in errors:
        text = f"{fault['message']} {fault['details']}"
        alike.setdefault((fault.get("class_type", ""), text), []).append(fault.get("node_id", ""))
    return [f"{_node_prefix(kind, nodes)}{text}" for (kind, text), nodes in alike.items()]


def _node_prefix(kind: str, nodes: list[str]) -> str:
    if not kind:
        return ""
    return f"node {nodes[0]} ({kind}): " if len(nodes) == 1 else f"{len(nodes)} nodes of {kind}: "


def _model_run_lines(result: Document) -> list[str]:
    """Return lines for the model runs of the workflow with their prices; empty for a single run."""
    orders = (result["estimate"] or {}).get("orders", [])
    if len(orders) == 1 and orders[0]["count"] == 1:
        return []
    return [f"{order['count']} of {order['model']}: {order['price_usd']} USD" for order in orders]


def _verdict(result: Document) -> str:
    if not result["valid"]:
        return "It cannot run"
    estimate = result["estimate"]
    if "unavailable" in estimate:
        return f"It cannot run here: {estimate['unavailable']}"
    files = f"; its models need {estimate['vram_gb']:g} GB in ComfyUI" if estimate["vram_gb"] else ""
    return f"It can run and costs at most {estimate['price_usd']} USD{files}"


def verify(arguments: argparse.Namespace) -> int:
    """Run `workflow verify`: check built-in workflows against their node classes; return 1 on a failure."""
    from sixfold.app import graphs as app_graphs
    from sixfold.core.workflows import workflows

    registry = app_graphs.node_classes()
    built_in = app_graphs.built_in_workflows()
    if unknown := [slug for slug in arguments.slugs if slug not in built_in]:
        listed = "`sixfold workflow list` lists the built-in workflows"
        near = near_names.question(unknown[0], built_in, listed)
        raise CommandError(f"Built-in workflow {unknown[0]} not found; {near}")
    day = time.strftime("%Y-%m-%d", time.gmtime())
    slugs = [built_in[slug] for slug in arguments.slugs or built_in]
    records = {space.slug: workflows.verified(space, registry, day) for space in slugs}
    if arguments.json:
        put_json(records)
    else:
        TerminalStyle().table(
            ("workflow", "status", "evidence"),
            [(slug, record["status"], record["evidence"]) for slug, record in records.items()],
        )
    return 0 if all(record["status"] == "api-validated" for record in records.values()) else 1


def _space(client: ServerClient, slug: str) -> Document:
    try:
        return client.get(f"{_PATH}/{quote(slug, safe='')}")
    except NotFoundError:
        names = [space["slug"] for page in client.lists(_PATH) for space in page["spaces"]]
        if near := near_names.question(slug, names):
            raise CommandError(f"Workflow {slug} not found; {near}") from None
        raise


def _slug(client: ServerClient, text: str) -> tuple[str, bool]:
    """Return the slug of a workflow, and whether it is temporary because `text` is a file to import."""
    path = Path(text)
    if path.suffix.lower() in (".json", ".png", ".webp") and path.is_file():
        return str(_import(client, path, "")["slug"]), True
    return text, False


def _import(client: ServerClient, path: Path, name: str) -> Document:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path} cannot be read ({error.strerror})") from None
    address = f"{_PATH}?name={quote(name or path.stem, safe='')}"
    answer = client.ask("POST", address, data, {"Content-Type": "application/octet-stream"})
    return client.document(answer, _PATH)


def _inputs(space: Document) -> str:
    rows = space["apiInputs"] or ()
    return ", ".join(row["name"] + ("*" if row["required"] else "") for row in rows) or "none"
