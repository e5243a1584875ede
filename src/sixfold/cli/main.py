"""The argument parser of all commands; it imports little, so that help appears at once.

Each command names its function as `module:function` of this package; `dispatch` imports and calls it.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from sixfold.cli.memory import parser as memory_parser

# argparse's class for a set of commands is private.
Group = Any


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="sixfold",
        description="One self-hosted server with six AI media interfaces on one account and one ledger.",
        epilog="Begin with `sixfold serve`; `sixfold COMMAND --help` tells more of each command.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and leave")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    serving = (_serve, _open, _worker, _run, _predictions, _workflow, _memory, _inspect, _replay)
    for add in (
        *serving,
        _mcp,
        _model,
        _space,
        _account,
        _key,
        _provider,
        _ledger,
        _upkeep,
        _backup,
        _completion,
    ):
        add(commands)
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


def _asking(group: Group, name: str, target: str, summary: str, detail: str = "") -> argparse.ArgumentParser:
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
        "serve:serve",
        "start the server",
        "The first start on this machine makes an account with credit and prints its key once.",
    )
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, help="the port to listen on (default: 8600; 0 takes any free one)"
    )
    parser.add_argument("--areas", metavar="A,B", help="serve these areas only, as in media,imagekit")
    parser.add_argument("--public-url", metavar="URL", help="the origin that clients see, behind a proxy")
    parser.add_argument("--comfyui-port", type=int, metavar="PORT", help="listen there too, as in 8188")
    parser.add_argument("--workers", type=int, metavar="N", help="runs at once (0: leave all to `worker`s)")


def _open(commands: Group) -> None:
    parser = _asking(
        commands,
        "open",
        "accounts:open_pages",
        "open the pages in a browser, signed in as the operator",
        "Without a browser or a terminal it prints a link that signs in once.",
    )
    parser.add_argument("--print", action="store_true", help="print the link instead of opening it")


def _worker(commands: Group) -> None:
    parser = _command(
        commands,
        "worker",
        "worker:work",
        "run what servers accepted, without serving",
        "It shares their database and object store: SIXFOLD_DATABASE_URL and SIXFOLD_BLOB_URL.",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="runs at once (default: number of cores)")


def _mcp(commands: Group) -> None:
    parser = _command(
        commands,
        "mcp",
        "mcp:proxy",
        "be a tool server on standard input and output, for agents",
        "It passes everything on to a server's /mcp, with the key in SIXFOLD_API_KEY.",
    )
    _client(parser)


# -- clients of a running server -----------------------------------------------------------------


def _client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--api-url", metavar="URL", help="the server (default: the one that runs here)")


def _run(commands: Group) -> None:
    parser = _asking(
        commands,
        "run",
        "run:run",
        "run a model and save what it makes",
        "It runs on the server, with the key in SIXFOLD_API_KEY or the one that the first start kept.",
    )
    parser.add_argument("model", nargs="?", help="a model's name, as in ra1")
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="NAME=VALUE",
        help="an input; NAME=@FILE sends a file, as in image=@a.jpg",
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="the file, or folder, for what is made")
    parser.add_argument("--list", action="store_true", help="list the models and their inputs")
    parser.add_argument("--quote", action="store_true", help="say what it would cost, and run nothing")
    parser.add_argument("--hardware", metavar="ID", help="other hardware than the template's own")
    parser.add_argument("--variant", metavar="NAME", help="one of a template's variants")
    parser.add_argument(
        "--mount",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a file that the run sees as /mnt/sixfold/artifacts/NAME",
    )
    _client(parser)


def _predictions(commands: Group) -> None:
    parser = _asking(
        commands,
        "predictions",
        "predictions:predictions",
        "show what ran, newest first, or one prediction with its receipt",
        "`predictions ID` follows one that has not ended; `predictions cancel ID` cancels it.",
    )
    parser.add_argument("words", nargs="*", metavar="ID | cancel ID", help="one prediction, or one to cancel")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="how many to list (default: 20)")
    _client(parser)


def _workflow(commands: Group) -> None:
    group = _group(commands, "workflow", "list, run, import and check workflow spaces")
    _client(_asking(group, "list", "workflow:list_spaces", "list the spaces and their inputs"))
    show = _asking(group, "show", "workflow:show", "show a space and its inputs")
    show.add_argument("slug", metavar="SLUG")
    run = _asking(group, "run", "workflow:run", "run a space, or a workflow's file, and save what it makes")
    run.add_argument("slug", metavar="SLUG", help="a space, or a file: JSON, PNG or WebP")
    run.add_argument("inputs", nargs="*", metavar="NAME=VALUE", help="an input; NAME=@FILE sends a file")
    run.add_argument("-o", "--output", metavar="OUT", help="the file, or folder, for what is made")
    bring = _asking(group, "import", "workflow:import_file", "make a workflow's file a space of your own")
    bring.add_argument("file", metavar="FILE", help="JSON in either format, or a picture that carries one")
    bring.add_argument("--name", default="", metavar="NAME", help="its name (default: the file's)")
    check = _asking(group, "validate", "workflow:validate", "say everything that is wrong with a workflow")
    check.add_argument("file", metavar="FILE")
    for parser in (show, run, bring, check):
        _client(parser)
    verify = _asking(group, "verify", "workflow:verify", "check the built-in spaces against their classes")
    verify.add_argument("slugs", nargs="*", metavar="SLUG", help="these only")


def _memory(commands: Group) -> None:
    group = _group(commands, "memory", "search, read, write and link the pages of the memory")
    memory_parser.add(group, _asking, _client)


# -- files made by Sixfold -----------------------------------------------------------------------


def _inspect(commands: Group) -> None:
    parser = _asking(commands, "inspect", "inspect_file:inspect", "show what a file says of its origin")
    parser.add_argument("file", metavar="FILE", help="a picture, film, sound or 3D file")


def _replay(commands: Group) -> None:
    parser = _asking(
        commands,
        "replay",
        "replay:replay",
        "make a file again from what it says of its origin",
        "It runs on this machine, needs no server and costs nothing; embedded engines give the same bytes.",
    )
    parser.add_argument("file", metavar="FILE", help="a file that Sixfold made")
    parser.add_argument("-o", "--output", metavar="OUT", help="where to write it (default: beside FILE)")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; say only whether the bytes agree"
    )
    parser.add_argument(
        "--parent", action="append", default=[], metavar="FILE", help="a file that went in, if it is not here"
    )


# -- administration ------------------------------------------------------------------------------


def _account(commands: Group) -> None:
    group = _group(commands, "account", "make and look after accounts")
    create = _asking(group, "create", "accounts:create", "make an account with a key")
    create.add_argument("email", metavar="EMAIL")
    create.add_argument("--credit", default="0", metavar="USD", help="its opening balance (default: 0)")
    create.add_argument("--operator", action="store_true", help="it is that of whoever runs the server")
    credit = _asking(group, "credit", "accounts:credit", "add to a balance, or take from it")
    credit.add_argument("email", metavar="EMAIL")
    credit.add_argument("usd", metavar="USD", help="as in 25 or -0.50")
    show = _asking(group, "show", "accounts:show", "show an account's balance")
    show.add_argument("email", metavar="EMAIL")
    password = _asking(group, "password", "accounts:password", "set the password for signing in to the pages")
    password.add_argument("email", metavar="EMAIL")
    password.add_argument(
        "--stdin", action="store_true", help="read it from standard input instead of asking"
    )
    take = _asking(
        group, "export", "account_data:take_out", "write all that belongs to an account into one zip"
    )
    take.add_argument("email", metavar="EMAIL")
    take.add_argument("file", metavar="FILE")
    delete = _asking(
        group,
        "delete",
        "account_data:delete",
        "close an account and erase all that belongs to it",
        "Its keys end at once; until it is erased `account keep` brings it back. The ledger stays, nameless.",
    )
    delete.add_argument("email", metavar="EMAIL")
    delete.add_argument("--now", action="store_true", help="wait no days: erase it at once")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    stay = _asking(group, "keep", "account_data:keep", "keep an account that was closed")
    stay.add_argument("email", metavar="EMAIL")
    link = _asking(group, "link", "accounts:link", "make a link that signs in once, within the hour")
    link.add_argument("email", metavar="EMAIL")


def _key(commands: Group) -> None:
    group = _group(commands, "key", "make, list and revoke API keys")
    create = _asking(group, "create", "accounts:create_key", "make a key; it is shown this once")
    create.add_argument("email", metavar="EMAIL")
    create.add_argument(
        "--rights",
        metavar="A,B",
        help="run, memory.read, memory.write, account.read, account.manage, operate; else all but operate",
    )
    create.add_argument("--read-only", action="store_true", help="it may read the memory and do nothing else")
    create.add_argument(
        "--collections", metavar="A,B", help="read and write these collections of the memory only"
    )
    create.add_argument("--services", metavar="A,B", help="it may use these models and services only")
    create.add_argument("--budget-day", metavar="USD", help="the most that it may spend in a day")
    create.add_argument("--budget-month", metavar="USD", help="the most that it may spend in a month")
    create.add_argument("--rpm", type=int, metavar="N", help="requests per minute")
    create.add_argument("--tpm", type=int, metavar="N", help="tokens per minute")
    create.add_argument("--expires", metavar="DATE", help="its last day, or moment: 2027-01-31[T12:00Z]")
    listing = _asking(group, "list", "accounts:list_keys", "list an account's keys, without their secrets")
    listing.add_argument("email", metavar="EMAIL")
    revoke = _asking(group, "revoke", "accounts:revoke_key", "end a key at once")
    revoke.add_argument("id", metavar="ID", help="the key's id, as in key_06g…")


def _provider(commands: Group) -> None:
    group = _group(commands, "provider", "keep the keys of providers")
    names = ("fal", "replicate", "openai", "anthropic")
    put = _asking(
        group,
        "set",
        "providers:set_key",
        "store a provider's key, sealed",
        "It is asked for, or read from standard input where that is no terminal.",
    )
    put.add_argument("provider", choices=names)
    _asking(group, "list", "providers:list_keys", "tell which keys there are, and where each comes from")
    check = _asking(group, "check", "providers:check_key", "ask a provider whether it accepts the key")
    check.add_argument("provider", choices=names)
    check.add_argument("--base-url", metavar="URL", help="ask the server that speaks its protocol there")
    remove = _asking(group, "remove", "providers:remove_key", "forget a stored key")
    remove.add_argument("provider", choices=names)


def _model(commands: Group) -> None:
    group = _group(commands, "model", "models of your own: typed Python functions in files, and images")
    add = _asking(
        group,
        "add",
        "model.commands:add",
        "make a Python file's function, or a container image, a model",
        "A file has one function with @sixfold.model; an image was built with Cog, and the server starts it.",
    )
    add.add_argument("source", metavar="FILE.py | IMAGE")
    add.add_argument("--name", metavar="NAME", help="what to call it (default: what it says itself)")
    add.add_argument("--hardware", metavar="ID", help="what its time is priced as (default: gpu-24gb-b)")
    _client(add)
    _asking(group, "list", "model.commands:list_", "list them, and what is wrong with a file")
    logs = _asking(
        group,
        "logs",
        "model.logs:logs",
        "show what a model printed, and how its runs ended",
        "With --json and --follow it is one object on each line.",
    )
    logs.add_argument("name", metavar="NAME")
    logs.add_argument("--follow", action="store_true", help="go on with each line as it is printed")
    logs.add_argument(
        "--limit", type=int, default=20, metavar="N", help="the last so many runs (default: 20)"
    )
    _client(logs)
    remove = _asking(group, "remove", "model.commands:remove", "take a model away")
    remove.add_argument("name", metavar="NAME")


def _space(commands: Group) -> None:
    group = _group(commands, "space", "applications of others as models: served, or run here and shut in")
    bring = _asking(
        group,
        "import",
        "space:import_",
        "make a Gradio application a model",
        "A folder runs on this machine: in a container, or in a sandbox where there is no Docker or Podman.",
    )
    bring.add_argument("space", metavar="OWNER/NAME | URL | FOLDER")
    bring.add_argument(
        "--run", choices=("remote", "container", "process"), help="where (default: what can be)"
    )
    bring.add_argument("--name", metavar="NAME", help="what to call a folder's (default: the folder's name)")
    bring.add_argument("--hardware", metavar="ID", help="what its time is priced as (default: gpu-24gb-b)")
    _client(bring)


def _ledger(commands: Group) -> None:
    group = _group(commands, "ledger", "look after the money")
    _asking(group, "verify", "ledger:verify", "prove that every sum is right")
    entries = _asking(
        group,
        "entries",
        "ledger:entries",
        "list the entries of an account, and the sum behind each charge",
    )
    entries.add_argument("email", metavar="EMAIL")
    entries.add_argument("--limit", type=int, default=25, metavar="N", help="at most N (default: 25)")
    entries.add_argument("--cursor", metavar="CURSOR", help="go on from where the last list ended")
    costs = _asking(
        group,
        "costs",
        "ledger:costs",
        "tell what each engine earned, and what other services took for it",
    )
    costs.add_argument("--days", type=int, default=30, metavar="N", help="of the last N days (default: 30)")


def _completion(commands: Group) -> None:
    parser = _command(
        commands,
        "completion",
        "completion:completion",
        "print what ends words of this command line in a shell",
        'In bash: eval "$(sixfold completion bash)".',
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def _upkeep(commands: Group) -> None:
    doctor = _asking(
        commands,
        "doctor",
        "doctor:doctor",
        "show what works here and what would unlock more",
        "It asks the server that runs on the data folder, and looks around itself where none runs.",
    )
    doctor.add_argument("--all", action="store_true", help="show every model and every way to unlock more")
    engines = _group(commands, "engines", "list engines, and add or remove weights")
    listing = _asking(
        engines, "list", "doctor:list_engines", "list the engines that serve now, and the weights"
    )
    listing.add_argument("--all", action="store_true", help="list every engine and what it lacks")
    _weights(engines)
    migrate = _asking(commands, "migrate", "maintenance:migrate", "bring the database to another schema")
    migrate.add_argument("--to", type=int, metavar="N", help="this schema (default: the newest)")
    migrate.add_argument("--drop", action="store_true", help="going back, drop what the older schema lacks")


def _weights(engines: Group) -> None:
    add = _asking(
        engines,
        "add",
        "engines:add",
        "fetch weights, check every file, and try them with a first picture",
        "It goes on where it was interrupted. Only safetensors are taken.",
    )
    add.add_argument("family", metavar="FAMILY", help="what they make, as in image")
    add.add_argument("--model", metavar="NAME", help="which of the family, or any owner/name of the Hub")
    add.add_argument("--revision", metavar="REV", help="a commit, tag or branch (default: the newest commit)")
    add.add_argument(
        "--from", dest="source", metavar="PATH", help="copy this folder or .safetensors file instead"
    )
    add.add_argument("--name", metavar="NAME", help="what to call them here (default: the model's name)")
    add.add_argument("--no-check", dest="check", action="store_false", help="leave out the first picture")
    remove = _asking(engines, "remove", "engines:remove", "delete weights that were added")
    remove.add_argument("family", metavar="FAMILY")
    remove.add_argument("name", metavar="NAME", help="as `engines list` shows it")


def _backup(commands: Group) -> None:
    backup = _asking(
        commands,
        "backup",
        "maintenance:backup",
        "write everything into one file, while the server runs",
        "server.key, local.key, sixfold.toml and providers' keys are not in it.",
    )
    backup.add_argument("file", metavar="FILE")
    restore = _asking(
        commands,
        "restore",
        "maintenance:restore",
        "fill an empty data folder from a backup",
        "Nothing is visible in the folder until all of it is there and its hashes agree.",
    )
    restore.add_argument("file", metavar="FILE")
    restore.add_argument("--verify", action="store_true", help="compare every row and file again afterwards")


if __name__ == "__main__":
    sys.exit(main())
