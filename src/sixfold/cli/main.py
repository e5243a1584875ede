"""The argument parser of all commands; it imports few modules, so help is printed at once."""

from __future__ import annotations

import sys

from sixfold.cli.parsers import database, gateway, imports, memory, organizations
from sixfold.cli.parsers.command_parser import CommandGroup, CommandParser
from sixfold.providers import PROVIDERS


def build_parser() -> CommandParser:
    """Return the parser of the whole command line."""
    parser = CommandParser(
        prog="sixfold",
        description="A self-hosted AI media server: six APIs with one account, one key and one ledger.",
        epilog="First steps: `sixfold serve`, and in a second shell `sixfold open` for the pages, "
        "`sixfold run ra1 prompt='a lighthouse' -o light.png` for an image, `sixfold run chat prompt=Hello` "
        "for a chat and `sixfold doctor` for other models. `sixfold COMMAND --help` describes a command.",
    )
    parser.flag("--version", "print the version and exit")
    commands = CommandGroup(parser, "command", required=False)
    serving = (_serve, _open, _worker, _run, _predictions, _workflow, _memory, _inspect, _replay, _c2pa, _mcp)
    for add in (*serving, _model, _space, _account, _key, _provider, _ledger, _upkeep, _completion):
        add(commands)
    for module in (database, gateway, imports, organizations):
        module.add(commands)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command; return 0 for success, 1 for a failure, 2 for wrong usage."""
    parser = build_parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        command: CommandParser = getattr(arguments, "parser", parser)
        command.add_rest(arguments, unknown)
    if arguments.version:
        from sixfold import __version__

        sys.stdout.write(f"sixfold {__version__}\n")
        return 0
    if arguments.command is None:
        parser.print_help()
        return 0
    from sixfold.cli import dispatch

    return dispatch.run(arguments)


# -- the server ----------------------------------------------------------------------------------


def _serve(commands: CommandGroup) -> None:
    parser = commands.command(
        "serve",
        "server.serve:serve",
        "start the server",
        "The first start creates an account with credit and prints its key once.",
    )
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, help="the port to listen on (default: 8600; 0 chooses a free one)"
    )
    parser.argument("--areas", "A,B", "serve only these APIs, such as media,imagekit")
    parser.argument("--public-url", "URL", "the URL that clients use, behind a proxy")
    parser.add_argument(
        "--comfyui-port", type=int, metavar="PORT", help="also serve the ComfyUI API on this port, e.g. 8188"
    )
    parser.number("--workers", "maximum number of concurrent runs (0: leave all runs to `sixfold worker`)")
    parser.number("--processes", "number of server processes (default: 1)")


def _open(commands: CommandGroup) -> None:
    parser = commands.report(
        "open",
        "accounts:open_pages",
        "open the web pages in a browser, signed in as the operator",
        "Without a browser or a terminal it prints a one-time sign-in link.",
    )
    parser.flag("--print", "print the link instead of opening it")


def _worker(commands: CommandGroup) -> None:
    parser = commands.command(
        "worker",
        "server.worker:work",
        "run predictions that servers have accepted, without an HTTP server",
        "It uses the servers' database and object store: SIXFOLD_DATABASE_URL and SIXFOLD_BLOB_URL.",
    )
    parser.number("--workers", "number of concurrent runs (default: number of cores)")


def _mcp(commands: CommandGroup) -> None:
    parser = commands.command(
        "mcp",
        "mcp:proxy",
        "run an MCP server on standard input and output, for agents",
        "It forwards messages to a server's /mcp, with the key in SIXFOLD_API_KEY.",
    )
    parser.client()


# -- clients of a running server -----------------------------------------------------------------


def _run(commands: CommandGroup) -> None:
    parser = commands.report(
        "run",
        "run:run",
        "run a model and save its outputs",
        "It runs on the server, with the key in SIXFOLD_API_KEY or the one that the first start stored.",
    )
    parser.add_argument("model", nargs="?", help="the name of a model, such as ra1")
    parser.argument(
        "inputs", "NAME=VALUE", "an input; NAME=@FILE sends a file, such as image=@a.jpg", nargs="*"
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="the file or folder for the outputs")
    parser.flag("--list", "list the models and their inputs")
    parser.flag("--quote", "show the price without running")
    parser.argument("--hardware", "ID", "hardware to use instead of the template's default")
    parser.argument("--variant", "NAME", "a variant of the template")
    parser.repeated("--mount", "mount a file as /mnt/sixfold/artifacts/NAME", "NAME=FILE")
    parser.client()


def _predictions(commands: CommandGroup) -> None:
    parser = commands.report(
        "predictions",
        "predictions:predictions",
        "list predictions, newest first, or show a prediction with its receipt",
        "`predictions ID` follows a running prediction; `predictions cancel ID` cancels it.",
    )
    parser.argument("words", "ID | cancel ID", "a prediction to show or cancel", nargs="*")
    parser.number("--limit", "number of predictions to list", 20)
    parser.client()


def _workflow(commands: CommandGroup) -> None:
    group = commands.group("workflow", "list, run, import and check workflows")
    group.report("list", "workflow:list_spaces", "list the workflows and their inputs").client()
    show = group.report("show", "workflow:show", "show a workflow and its inputs")
    show.argument("slug", "SLUG")
    run = group.report("run", "workflow:run", "run a workflow, by slug or file, and save its outputs")
    run.argument("slug", "SLUG", "a slug, or a file: JSON, PNG or WebP")
    run.argument("inputs", "NAME=VALUE", "an input; NAME=@FILE sends a file", nargs="*")
    run.add_argument("-o", "--output", metavar="OUT", help="the file or folder for the outputs")
    import_ = group.report("import", "workflow:import_file", "import a workflow file")
    import_.argument("file", "FILE", "JSON in either format, or an image that contains a workflow")
    import_.argument("--name", "NAME", "the name (default: that of FILE)", default="")
    rename = group.report("rename", "workflow:rename", "rename one of your workflows, but not its slug")
    rename.argument("slug", "SLUG")
    rename.argument("name", "NAME")
    copy = group.report("copy", "workflow:copy", "copy a workflow, built in or your own")
    copy.argument("slug", "SLUG")
    copy.argument("--name", "NAME", "the name of the copy", default="")
    remove = group.report("remove", "workflow:remove", "delete one of your workflows")
    remove.argument("slug", "SLUG")
    check = group.report("validate", "workflow:validate", "list all errors in a workflow file")
    check.argument("file", "FILE")
    for parser in (show, run, import_, rename, copy, remove, check):
        parser.client()
    verify = group.report(
        "verify", "workflow:verify", "check the built-in workflows against their node classes"
    )
    verify.argument("slugs", "SLUG", "only these workflows", nargs="*")


def _memory(commands: CommandGroup) -> None:
    group = commands.group("memory", "search, read, write and link pages of the memory")
    memory.add(group)


# -- output files of Sixfold ---------------------------------------------------------------------


def _inspect(commands: CommandGroup) -> None:
    parser = commands.report(
        "inspect", "inspect_file:inspect", "show the manifest of a file and verify its signature"
    )
    parser.argument("file", "FILE", "an image, video, audio or 3D file")


def _replay(commands: CommandGroup) -> None:
    parser = commands.report(
        "replay",
        "replay.commands:replay",
        "recreate a file from its manifest",
        "It runs on this machine without a server or charge; embedded engines give the same bytes.",
    )
    parser.argument("file", "FILE", "a file that Sixfold generated")
    parser.add_argument("-o", "--output", metavar="OUT", help="the file to write (default: next to FILE)")
    parser.flag("--check", "only compare the bytes")
    parser.repeated("--parent", "an input file, if it is not in the data folder", "FILE")


def _c2pa(commands: CommandGroup) -> None:
    group = commands.group("c2pa", "create a certificate for C2PA manifests")
    create = group.report("create", "c2pa_certificate:create", "create a certificate and its key")
    create.add_argument("--name", default="Sixfold", help="the organization (default: Sixfold)")
    create.number("--days", "days of validity", 3650)


# -- administration ------------------------------------------------------------------------------


def _account(commands: CommandGroup) -> None:
    group = commands.group("account", "create and manage accounts")
    create = group.report("create", "accounts:create", "create an account with a key")
    create.argument("email", "EMAIL")
    create.argument("--credit", "USD", "the initial balance (default: 0)", default="0")
    create.flag("--operator", "make it the operator's account")
    credit = group.report("credit", "accounts:credit", "add to a balance, or subtract from it")
    credit.argument("email", "EMAIL")
    credit.argument("usd", "USD", "an amount such as 25 or -0.50")
    show = group.report("show", "accounts:show", "show an account's balance")
    show.argument("email", "EMAIL")
    password = group.report("password", "accounts:password", "set the password for the web pages")
    password.argument("email", "EMAIL")
    password.flag("--stdin", "read the password from standard input instead of a prompt")
    export = group.report("export", "account_data:export_account", "export all data of an account to a zip")
    export.argument("email", "EMAIL")
    export.argument("file", "FILE")
    delete = group.report(
        "delete",
        "account_data:delete",
        "close an account and erase its data",
        "Its keys end at once; `account keep` restores it until it is erased. The ledger stays, anonymized.",
    )
    delete.argument("email", "EMAIL")
    delete.flag("--now", "erase it without the waiting period")
    delete.flag("--yes", "do not ask for confirmation")
    keep = group.report("keep", "account_data:cancel_deletion", "cancel the deletion of an account")
    keep.argument("email", "EMAIL")
    link = group.report("link", "accounts:link", "create a one-time sign-in link, valid for one hour")
    link.argument("email", "EMAIL")


def _key(commands: CommandGroup) -> None:
    group = commands.group("key", "create, list and revoke API keys")
    create = group.report("create", "accounts:create_key", "create a key, which is shown once")
    create.argument("email", "EMAIL")
    create.argument(
        "--rights",
        "A,B",
        "run, memory.*, account.read, account.manage, operate (default: all except operate)",
    )
    create.flag("--read-only", "allow only reading the memory")
    create.argument("--collections", "A,B", "limit the key to these collections of the memory")
    create.argument("--services", "A,B", "limit the key to these models and services")
    create.argument("--budget-day", "USD", "spending limit per day")
    create.argument("--budget-month", "USD", "spending limit per month")
    create.number("--rpm", "maximum requests per minute")
    create.number("--tpm", "maximum tokens per minute")
    create.add_argument("--name", help="the purpose of the key, such as laptop")
    create.argument("--expires", "DATE", "last day or time of validity: 2027-01-31[T12:00Z]")
    listing = group.report("list", "accounts:list_keys", "list the keys of an account, without their secrets")
    listing.argument("email", "EMAIL")
    revoke = group.report("revoke", "accounts:revoke_key", "revoke a key immediately")
    revoke.argument("id", "ID", "the ID of the key, such as key_06g…", nargs="?")
    every = "revoke all keys and programs, end all login sessions, invitations and shares, of all accounts"
    revoke.flag("--all", every)


def _provider(commands: CommandGroup) -> None:
    group = commands.group("provider", "manage provider keys")
    set_ = group.report(
        "set",
        "providers:set_key",
        "store a provider's key, encrypted",
        "The key is read from a prompt, or from standard input without a terminal. To add a model server "
        "with an address of your own, use the page /admin/models.",
    )
    set_.add_argument("provider", choices=PROVIDERS)
    group.report("list", "providers:list_keys", "list the keys and their sources")
    check = group.report("check", "providers:check_key", "ask a provider whether it accepts the key")
    check.add_argument("provider", choices=PROVIDERS)
    check.argument("--base-url", "URL", "check against a compatible server at this URL")
    remove = group.report("remove", "providers:remove_key", "remove a stored key")
    remove.add_argument("provider", choices=PROVIDERS)


def _model(commands: CommandGroup) -> None:
    group = commands.group("model", "manage custom models: typed Python functions and container images")
    add = group.report(
        "add",
        "model.commands:add",
        "add a Python function or a container image as a model",
        "A file has one function with @sixfold.model. An image is built with Cog; the server starts it.",
    )
    add.argument("source", "FILE.py | IMAGE")
    add.argument("--name", "NAME", "the name (default: the one in the file or image)")
    add.argument("--hardware", "ID", "the hardware whose price applies (default: gpu-24gb-b)")
    add.client()
    group.report("list", "model.commands:list_", "list custom models and the errors in their files")
    logs = group.report(
        "logs",
        "model.logs:logs",
        "show the output of a model and the results of its runs",
        "With --json and --follow it prints one object per line.",
    )
    logs.argument("name", "NAME")
    logs.flag("--follow", "continue with new lines as they are printed")
    logs.number("--limit", "number of recent runs to show", 20)
    logs.client()
    remove = group.report("remove", "model.commands:remove", "remove a custom model")
    remove.argument("name", "NAME")


def _space(commands: CommandGroup) -> None:
    group = commands.group("space", "import Gradio applications as models")
    import_ = group.report(
        "import",
        "space:import_",
        "import a Gradio application as a model",
        "A folder runs on this machine in a container, or in a sandbox without Docker or Podman.",
    )
    import_.argument("space", "OWNER/NAME | URL | FOLDER")
    import_.add_argument(
        "--run",
        choices=("remote", "container", "process"),
        help="where to run it (default: the first that works)",
    )
    import_.argument("--name", "NAME", "the name for a folder (default: the folder's name)")
    import_.argument("--hardware", "ID", "the hardware whose price applies (default: gpu-24gb-b)")
    import_.client()


def _ledger(commands: CommandGroup) -> None:
    group = commands.group("ledger", "check and list ledger entries and costs")
    group.report("verify", "ledger:verify", "check that the ledger is consistent")
    entries = group.report(
        "entries", "ledger:entries", "list the entries of an account with the calculation of each charge"
    )
    entries.argument("email", "EMAIL")
    entries.number("--limit", "maximum number of entries", 25)
    entries.argument("--cursor", "CURSOR", "continue a previous list")
    usage = group.report(
        "usage", "ledger:usage", "show the usage of an account by day, model, key, member and team"
    )
    usage.argument("email", "EMAIL")
    usage.number("--days", "number of days", 30)
    usage.argument("--by", "A,B", "also member, team, tag", default="day,kind,model,key")
    usage.flag("--csv", "print CSV")
    costs = group.report("costs", "ledger:costs", "show earnings and provider costs by engine")
    costs.number("--days", "number of days", 30)


def _completion(commands: CommandGroup) -> None:
    parser = commands.command(
        "completion",
        "completion:completion",
        "print a shell completion script",
        'In bash: eval "$(sixfold completion bash)".',
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def _upkeep(commands: CommandGroup) -> None:
    doctor = commands.report(
        "doctor",
        "doctor.commands:doctor",
        "show the available models and how to enable others",
        "It uses the report of the running server, or probes this machine if none is running.",
    )
    doctor.flag("--all", "show every model and ways to enable more")
    engines = commands.group("engines", "list engines, and add or remove weights")
    listing = engines.report(
        "list", "doctor.commands:list_engines", "list the engines in use and the installed weights"
    )
    listing.flag("--all", "list every engine and its requirements")
    _weights(engines)


def _weights(engines: CommandGroup) -> None:
    add = engines.report(
        "add",
        "engines.commands:add",
        "download weights, verify every file and run a self-check",
        "It resumes an interrupted download. Weights must be safetensors, ONNX or GGUF.",
    )
    add.argument("family", "FAMILY", "the family, such as image")
    add.argument("--model", "NAME", "a model of the family, or any owner/name on the Hub")
    add.argument("--revision", "REV", "a commit, tag or branch (default: the newest commit)")
    add.argument("--from", "PATH", "copy this folder or .safetensors file instead", dest="source")
    add.argument("--name", "NAME", "the name of the weights (default: the model's name)")
    add.add_argument("--no-check", dest="check", action="store_false", help="skip the self-check")
    add.flag("--progress", "print a line `@ DONE TOTAL` in bytes at each percent")
    remove = engines.report("remove", "engines.commands:remove", "delete installed weights")
    remove.argument("family", "FAMILY")
    remove.argument("name", "NAME", "a name in `engines list` (default: all of the family)", nargs="?")


if __name__ == "__main__":
    sys.exit(main())
