"""The argument parser of all commands; it imports few modules, so help is printed at once.

A command refers to its function as `module:function` of this package; `dispatch` imports and calls it.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from sixfold.cli.database import parser as database_parser
from sixfold.cli.gateway import parser as gateway_parser
from sixfold.cli.imports import parser as imports_parser
from sixfold.cli.memory import parser as memory_parser
from sixfold.cli.organizations import parser as organizations_parser
from sixfold.providers import PROVIDERS

# argparse's class for a set of commands is private.
Group = Any


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="sixfold",
        description="A self-hosted AI media server: six APIs with one account, one key and one ledger.",
        epilog="First steps: `sixfold serve`, and in a second shell `sixfold open` for the pages, "
        "`sixfold run ra1 prompt='a lighthouse' -o light.png` for an image, `sixfold run chat prompt=Hello` "
        "for a chat and `sixfold doctor` for other models. `sixfold COMMAND --help` describes a command.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    serving = (_serve, _open, _worker, _run, _predictions, _workflow, _memory, _inspect, _replay, _c2pa, _mcp)
    for add in (*serving, _model, _space, _account, _key, _provider, _ledger, _upkeep, _completion):
        add(commands)
    for module in (database_parser, gateway_parser, imports_parser, organizations_parser):
        module.add(commands, _group, _report)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command; return 0 for success, 1 for a failure, 2 for wrong usage."""
    parser = build_parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        command: argparse.ArgumentParser = getattr(arguments, "parser", parser)
        command.error(f"unrecognized arguments: {' '.join(unknown)}")
    if arguments.version:
        from sixfold import __version__

        sys.stdout.write(f"sixfold {__version__}\n")
        return 0
    if arguments.command is None:
        parser.print_help()
        return 0
    from sixfold.cli import dispatch

    return dispatch.run(arguments)


def _command(group: Group, name: str, target: str, summary: str, detail: str = "") -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = group.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}. {detail}".strip()
    )
    parser.set_defaults(target=target, parser=parser)
    parser.add_argument(
        "--data-dir", metavar="DIR", help="the server's data folder (default: SIXFOLD_DATA_DIR, or .sixfold)"
    )
    return parser


def _report(group: Group, name: str, target: str, summary: str, detail: str = "") -> argparse.ArgumentParser:
    parser = _command(group, name, target, summary, detail)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    return parser


def _group(commands: Group, name: str, summary: str) -> Group:
    parser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    return parser.add_subparsers(dest="subcommand", metavar="COMMAND", title="commands", required=True)


# -- the server ----------------------------------------------------------------------------------


def _serve(commands: Group) -> None:
    parser = _command(
        commands,
        "serve",
        "server.serve:serve",
        "start the server",
        "The first start creates an account with credit and prints its key once.",
    )
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, help="the port to listen on (default: 8600; 0 chooses a free one)"
    )
    parser.add_argument("--areas", metavar="A,B", help="serve only these APIs, such as media,imagekit")
    parser.add_argument("--public-url", metavar="URL", help="the URL that clients use, behind a proxy")
    parser.add_argument(
        "--comfyui-port", type=int, metavar="PORT", help="also serve the ComfyUI API on this port, e.g. 8188"
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="maximum number of concurrent runs (0: leave all runs to `sixfold worker`)",
    )
    parser.add_argument("--processes", type=int, metavar="N", help="number of server processes (default: 1)")


def _open(commands: Group) -> None:
    parser = _report(
        commands,
        "open",
        "accounts:open_pages",
        "open the web pages in a browser, signed in as the operator",
        "Without a browser or a terminal it prints a one-time sign-in link.",
    )
    parser.add_argument("--print", action="store_true", help="print the link instead of opening it")


def _worker(commands: Group) -> None:
    parser = _command(
        commands,
        "worker",
        "server.worker:work",
        "run predictions that servers have accepted, without an HTTP server",
        "It uses the servers' database and object store: SIXFOLD_DATABASE_URL and SIXFOLD_BLOB_URL.",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="number of concurrent runs (default: number of cores)"
    )


def _mcp(commands: Group) -> None:
    parser = _command(
        commands,
        "mcp",
        "mcp:proxy",
        "run an MCP server on standard input and output, for agents",
        "It forwards messages to a server's /mcp, with the key in SIXFOLD_API_KEY.",
    )
    _client(parser)


# -- clients of a running server -----------------------------------------------------------------


def _client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--api-url", metavar="URL", help="the server's URL (default: the server on this machine)"
    )


def _run(commands: Group) -> None:
    parser = _report(
        commands,
        "run",
        "run:run",
        "run a model and save its outputs",
        "It runs on the server, with the key in SIXFOLD_API_KEY or the one that the first start stored.",
    )
    parser.add_argument("model", nargs="?", help="the name of a model, such as ra1")
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="NAME=VALUE",
        help="an input; NAME=@FILE sends a file, such as image=@a.jpg",
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="the file or folder for the outputs")
    parser.add_argument("--list", action="store_true", help="list the models and their inputs")
    parser.add_argument("--quote", action="store_true", help="show the price without running")
    parser.add_argument("--hardware", metavar="ID", help="hardware to use instead of the template's default")
    parser.add_argument("--variant", metavar="NAME", help="a variant of the template")
    parser.add_argument(
        "--mount",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="mount a file as /mnt/sixfold/artifacts/NAME",
    )
    _client(parser)


def _predictions(commands: Group) -> None:
    parser = _report(
        commands,
        "predictions",
        "predictions:predictions",
        "list predictions, newest first, or show a prediction with its receipt",
        "`predictions ID` follows a running prediction; `predictions cancel ID` cancels it.",
    )
    parser.add_argument("words", nargs="*", metavar="ID | cancel ID", help="a prediction to show or cancel")
    parser.add_argument(
        "--limit", type=int, default=20, metavar="N", help="number of predictions to list (default: 20)"
    )
    _client(parser)


def _workflow(commands: Group) -> None:
    group = _group(commands, "workflow", "list, run, import and check workflows")
    _client(_report(group, "list", "workflow:list_spaces", "list the workflows and their inputs"))
    show = _report(group, "show", "workflow:show", "show a workflow and its inputs")
    show.add_argument("slug", metavar="SLUG")
    run = _report(group, "run", "workflow:run", "run a workflow, by slug or file, and save its outputs")
    run.add_argument("slug", metavar="SLUG", help="a slug, or a file: JSON, PNG or WebP")
    run.add_argument("inputs", nargs="*", metavar="NAME=VALUE", help="an input; NAME=@FILE sends a file")
    run.add_argument("-o", "--output", metavar="OUT", help="the file or folder for the outputs")
    import_ = _report(group, "import", "workflow:import_file", "import a workflow file")
    import_.add_argument(
        "file", metavar="FILE", help="JSON in either format, or an image that contains a workflow"
    )
    import_.add_argument("--name", default="", metavar="NAME", help="the name (default: that of FILE)")
    rename = _report(group, "rename", "workflow:rename", "rename one of your workflows, but not its slug")
    rename.add_argument("slug", metavar="SLUG")
    rename.add_argument("name", metavar="NAME")
    copy = _report(group, "copy", "workflow:copy", "copy a workflow, built in or your own")
    copy.add_argument("slug", metavar="SLUG")
    copy.add_argument("--name", default="", metavar="NAME", help="the name of the copy")
    remove = _report(group, "remove", "workflow:remove", "delete one of your workflows")
    remove.add_argument("slug", metavar="SLUG")
    check = _report(group, "validate", "workflow:validate", "list all errors in a workflow file")
    check.add_argument("file", metavar="FILE")
    for parser in (show, run, import_, rename, copy, remove, check):
        _client(parser)
    verify = _report(
        group, "verify", "workflow:verify", "check the built-in workflows against their node classes"
    )
    verify.add_argument("slugs", nargs="*", metavar="SLUG", help="only these workflows")


def _memory(commands: Group) -> None:
    group = _group(commands, "memory", "search, read, write and link pages of the memory")
    memory_parser.add(group, _report, _client)


# -- output files of Sixfold ---------------------------------------------------------------------


def _inspect(commands: Group) -> None:
    parser = _report(
        commands, "inspect", "inspect_file:inspect", "show the manifest of a file and verify its signature"
    )
    parser.add_argument("file", metavar="FILE", help="an image, video, audio or 3D file")


def _replay(commands: Group) -> None:
    parser = _report(
        commands,
        "replay",
        "replay.commands:replay",
        "recreate a file from its manifest",
        "It runs on this machine without a server or charge; embedded engines give the same bytes.",
    )
    parser.add_argument("file", metavar="FILE", help="a file that Sixfold generated")
    parser.add_argument("-o", "--output", metavar="OUT", help="the file to write (default: next to FILE)")
    parser.add_argument("--check", action="store_true", help="only compare the bytes")
    parser.add_argument(
        "--parent",
        action="append",
        default=[],
        metavar="FILE",
        help="an input file, if it is not in the data folder",
    )


def _c2pa(commands: Group) -> None:
    group = _group(commands, "c2pa", "create a certificate for C2PA manifests")
    create = _report(group, "create", "c2pa_certificate:create", "create a certificate and its key")
    create.add_argument("--name", default="Sixfold", help="the organization (default: Sixfold)")
    create.add_argument(
        "--days", type=int, default=3650, metavar="N", help="days of validity (default: 3650)"
    )


# -- administration ------------------------------------------------------------------------------


def _account(commands: Group) -> None:
    group = _group(commands, "account", "create and manage accounts")
    create = _report(group, "create", "accounts:create", "create an account with a key")
    create.add_argument("email", metavar="EMAIL")
    create.add_argument("--credit", default="0", metavar="USD", help="the initial balance (default: 0)")
    create.add_argument("--operator", action="store_true", help="make it the operator's account")
    credit = _report(group, "credit", "accounts:credit", "add to a balance, or subtract from it")
    credit.add_argument("email", metavar="EMAIL")
    credit.add_argument("usd", metavar="USD", help="an amount such as 25 or -0.50")
    show = _report(group, "show", "accounts:show", "show an account's balance")
    show.add_argument("email", metavar="EMAIL")
    password = _report(group, "password", "accounts:password", "set the password for the web pages")
    password.add_argument("email", metavar="EMAIL")
    password.add_argument(
        "--stdin", action="store_true", help="read the password from standard input instead of a prompt"
    )
    export = _report(group, "export", "account_data:export_account", "export all data of an account to a zip")
    export.add_argument("email", metavar="EMAIL")
    export.add_argument("file", metavar="FILE")
    delete = _report(
        group,
        "delete",
        "account_data:delete",
        "close an account and erase its data",
        "Its keys end at once; `account keep` restores it until it is erased. The ledger stays, anonymized.",
    )
    delete.add_argument("email", metavar="EMAIL")
    delete.add_argument("--now", action="store_true", help="erase it without the waiting period")
    delete.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    keep = _report(group, "keep", "account_data:cancel_deletion", "cancel the deletion of an account")
    keep.add_argument("email", metavar="EMAIL")
    link = _report(group, "link", "accounts:link", "create a one-time sign-in link, valid for one hour")
    link.add_argument("email", metavar="EMAIL")


def _key(commands: Group) -> None:
    group = _group(commands, "key", "create, list and revoke API keys")
    create = _report(group, "create", "accounts:create_key", "create a key, which is shown once")
    create.add_argument("email", metavar="EMAIL")
    create.add_argument(
        "--rights",
        metavar="A,B",
        help="run, memory.*, account.read, account.manage, operate (default: all except operate)",
    )
    create.add_argument("--read-only", action="store_true", help="allow only reading the memory")
    create.add_argument(
        "--collections", metavar="A,B", help="limit the key to these collections of the memory"
    )
    create.add_argument("--services", metavar="A,B", help="limit the key to these models and services")
    create.add_argument("--budget-day", metavar="USD", help="spending limit per day")
    create.add_argument("--budget-month", metavar="USD", help="spending limit per month")
    create.add_argument("--rpm", type=int, metavar="N", help="maximum requests per minute")
    create.add_argument("--tpm", type=int, metavar="N", help="maximum tokens per minute")
    create.add_argument("--name", help="the purpose of the key, such as laptop")
    create.add_argument("--expires", metavar="DATE", help="last day or time of validity: 2027-01-31[T12:00Z]")
    listing = _report(
        group, "list", "accounts:list_keys", "list the keys of an account, without their secrets"
    )
    listing.add_argument("email", metavar="EMAIL")
    revoke = _report(group, "revoke", "accounts:revoke_key", "revoke a key immediately")
    revoke.add_argument("id", metavar="ID", nargs="?", help="the ID of the key, such as key_06g…")
    every = "revoke all keys and programs, end all login sessions, invitations and shares, of all accounts"
    revoke.add_argument("--all", action="store_true", help=every)


def _provider(commands: Group) -> None:
    group = _group(commands, "provider", "manage provider keys")
    set_ = _report(
        group,
        "set",
        "providers:set_key",
        "store a provider's key, encrypted",
        "The key is read from a prompt, or from standard input without a terminal.",
    )
    set_.add_argument("provider", choices=PROVIDERS)
    _report(group, "list", "providers:list_keys", "list the keys and their sources")
    check = _report(group, "check", "providers:check_key", "ask a provider whether it accepts the key")
    check.add_argument("provider", choices=PROVIDERS)
    check.add_argument("--base-url", metavar="URL", help="check against a compatible server at this URL")
    remove = _report(group, "remove", "providers:remove_key", "remove a stored key")
    remove.add_argument("provider", choices=PROVIDERS)


def _model(commands: Group) -> None:
    group = _group(commands, "model", "manage custom models: typed Python functions and container images")
    add = _report(
        group,
        "add",
        "model.commands:add",
        "add a Python function or a container image as a model",
        "A file has one function with @sixfold.model. An image is built with Cog; the server starts it.",
    )
    add.add_argument("source", metavar="FILE.py | IMAGE")
    add.add_argument("--name", metavar="NAME", help="the name (default: the one in the file or image)")
    add.add_argument(
        "--hardware", metavar="ID", help="the hardware whose price applies (default: gpu-24gb-b)"
    )
    _client(add)
    _report(group, "list", "model.commands:list_", "list custom models and the errors in their files")
    logs = _report(
        group,
        "logs",
        "model.logs:logs",
        "show the output of a model and the results of its runs",
        "With --json and --follow it prints one object per line.",
    )
    logs.add_argument("name", metavar="NAME")
    logs.add_argument("--follow", action="store_true", help="continue with new lines as they are printed")
    logs.add_argument(
        "--limit", type=int, default=20, metavar="N", help="number of recent runs to show (default: 20)"
    )
    _client(logs)
    remove = _report(group, "remove", "model.commands:remove", "remove a custom model")
    remove.add_argument("name", metavar="NAME")


def _space(commands: Group) -> None:
    group = _group(commands, "space", "import Gradio applications as models")
    import_ = _report(
        group,
        "import",
        "space:import_",
        "import a Gradio application as a model",
        "A folder runs on this machine in a container, or in a sandbox without Docker or Podman.",
    )
    import_.add_argument("space", metavar="OWNER/NAME | URL | FOLDER")
    import_.add_argument(
        "--run",
        choices=("remote", "container", "process"),
        help="where to run it (default: the first that works)",
    )
    import_.add_argument("--name", metavar="NAME", help="the name for a folder (default: the folder's name)")
    import_.add_argument(
        "--hardware", metavar="ID", help="the hardware whose price applies (default: gpu-24gb-b)"
    )
    _client(import_)


def _ledger(commands: Group) -> None:
    group = _group(commands, "ledger", "check and list ledger entries and costs")
    _report(group, "verify", "ledger:verify", "check that the ledger is consistent")
    entries = _report(
        group,
        "entries",
        "ledger:entries",
        "list the entries of an account with the calculation of each charge",
    )
    entries.add_argument("email", metavar="EMAIL")
    entries.add_argument(
        "--limit", type=int, default=25, metavar="N", help="maximum number of entries (default: 25)"
    )
    entries.add_argument("--cursor", metavar="CURSOR", help="continue a previous list")
    usage = _report(
        group, "usage", "ledger:usage", "show the usage of an account by day, model, key, member and team"
    )
    usage.add_argument("email", metavar="EMAIL")
    usage.add_argument("--days", type=int, default=30, metavar="N", help="number of days (default: 30)")
    usage.add_argument("--by", default="day,kind,model,key", metavar="A,B", help="also member, team, tag")
    usage.add_argument("--csv", action="store_true", help="print CSV")
    costs = _report(group, "costs", "ledger:costs", "show earnings and provider costs by engine")
    costs.add_argument("--days", type=int, default=30, metavar="N", help="number of days (default: 30)")


def _completion(commands: Group) -> None:
    parser = _command(
        commands,
        "completion",
        "completion:completion",
        "print a shell completion script",
        'In bash: eval "$(sixfold completion bash)".',
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def _upkeep(commands: Group) -> None:
    doctor = _report(
        commands,
        "doctor",
        "doctor.commands:doctor",
        "show the available models and how to enable others",
        "It uses the report of the running server, or probes this machine if none is running.",
    )
    doctor.add_argument("--all", action="store_true", help="show every model and ways to enable more")
    engines = _group(commands, "engines", "list engines, and add or remove weights")
    listing = _report(
        engines, "list", "doctor.commands:list_engines", "list the engines in use and the installed weights"
    )
    listing.add_argument("--all", action="store_true", help="list every engine and its requirements")
    _weights(engines)


def _weights(engines: Group) -> None:
    add = _report(
        engines,
        "add",
        "engines.commands:add",
        "download weights, verify every file and run a self-check",
        "It resumes an interrupted download. Weights must be safetensors, ONNX or GGUF.",
    )
    add.add_argument("family", metavar="FAMILY", help="the family, such as image")
    add.add_argument("--model", metavar="NAME", help="a model of the family, or any owner/name on the Hub")
    add.add_argument("--revision", metavar="REV", help="a commit, tag or branch (default: the newest commit)")
    add.add_argument(
        "--from", dest="source", metavar="PATH", help="copy this folder or .safetensors file instead"
    )
    add.add_argument("--name", metavar="NAME", help="the name of the weights (default: the model's name)")
    add.add_argument("--no-check", dest="check", action="store_false", help="skip the self-check")
    add.add_argument(
        "--progress", action="store_true", help="print a line `@ DONE TOTAL` in bytes at each percent"
    )
    remove = _report(engines, "remove", "engines.commands:remove", "delete installed weights")
    remove.add_argument("family", metavar="FAMILY")
    remove.add_argument(
        "name", metavar="NAME", nargs="?", help="a name in `engines list` (default: all of the family)"
    )


if __name__ == "__main__":
    sys.exit(main())
