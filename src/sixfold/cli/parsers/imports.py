"""The argument parser of `import`."""

from __future__ import annotations

from sixfold.cli.parsers.command_parser import CommandGroup

_CHATS = {
    "chatgpt": "store the chats of a ChatGPT export as chats of an account",
    "openwebui": "store the users, chats and documents of Open WebUI as accounts, chats and pages",
}
_FILES = {
    "chatgpt": "the zip archive of the export, or its conversations.json",
    "openwebui": "webui.db, or the export of all chats as JSON",
}


def add(commands: CommandGroup) -> None:
    group = commands.group("import", "import configurations and chats from other programs")
    litellm = group.report(
        "litellm",
        "imports.commands:import_litellm",
        "convert the config.yaml of a LiteLLM proxy",
        "It prints the tables for sixfold.toml; --write adds them and leaves existing settings as they are.",
    )
    litellm.argument("file", "FILE", "the config.yaml")
    litellm.argument(
        "--keys", "FILE", "the response of LiteLLM's /key/list?return_full_object=true: create a key for each"
    )
    litellm.argument("--account", "EMAIL", "the account of the new keys")
    for name, text in _CHATS.items():
        chats = group.report(
            name,
            f"imports.chat_commands:import_{name}",
            text,
            "It prints what the file has and what is not imported; --write stores it. A second run"
            " adds nothing that the first one has added.",
        )
        chats.argument("file", "FILE", _FILES[name])
        chats.argument(
            "--account", "EMAIL", "the account of chats without a user", required=name == "chatgpt"
        )
        chats.flag("--write", "create the accounts, chats and documents")
        if name == "openwebui":
            chats.argument(
                "--uploads",
                "FOLDER",
                "the folder of uploaded files; default: the folder `uploads` next to webui.db",
            )
    litellm.flag("--write", "change sixfold.toml and create the keys")
