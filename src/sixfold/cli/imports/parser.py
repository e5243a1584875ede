"""The argument parser of `import`, in a separate module so that help does not import the commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

_CHATS = {
    "chatgpt": "store the chats of a ChatGPT export as chats of an account",
    "openwebui": "store the users, chats and documents of Open WebUI as accounts, chats and pages",
}
_FILES = {
    "chatgpt": "the zip archive of the export, or its conversations.json",
    "openwebui": "webui.db, or the export of all chats as JSON",
}
# argparse's class for a set of commands is private.
Group = Any


def add(
    commands: Group,
    new_group: Callable[[Group, str, str], Group],
    command: Callable[..., argparse.ArgumentParser],
) -> None:
    group = new_group(commands, "import", "import configurations and chats from other programs")
    litellm = command(
        group,
        "litellm",
        "imports.commands:import_litellm",
        "convert the config.yaml of a LiteLLM proxy",
        "It prints the tables for sixfold.toml; --write adds them and leaves existing settings as they are.",
    )
    litellm.add_argument("file", metavar="FILE", help="the config.yaml")
    litellm.add_argument(
        "--keys",
        metavar="FILE",
        help="the response of LiteLLM's /key/list?return_full_object=true: create a key for each",
    )
    litellm.add_argument("--account", metavar="EMAIL", help="the account of the new keys")
    for name, text in _CHATS.items():
        chats = command(
            group,
            name,
            f"imports.chat_commands:import_{name}",
            text,
            "It prints what the file has and what is not imported; --write stores it. A second run"
            " adds nothing that the first one has added.",
        )
        chats.add_argument("file", metavar="FILE", help=_FILES[name])
        chats.add_argument(
            "--account",
            metavar="EMAIL",
            required=name == "chatgpt",
            help="the account of chats without a user",
        )
        chats.add_argument("--write", action="store_true", help="create the accounts, chats and documents")
        if name == "openwebui":
            chats.add_argument(
                "--uploads",
                metavar="FOLDER",
                help="the folder of uploaded files; default: the folder `uploads` next to webui.db",
            )
    litellm.add_argument("--write", action="store_true", help="change sixfold.toml and create the keys")
