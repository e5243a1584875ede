"""The start banner: address, account, a command to paste, and the resources of this machine."""

from __future__ import annotations

import json
import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from sixfold import __version__
from sixfold.cli.client import KEY_FILE
from sixfold.cli.server.first_run import FirstRunInfo
from sixfold.cli.terminal import TerminalStyle
from sixfold.clients.hosts import CONTAINER_HOST
from sixfold.core.catalog.availability import Resource
from sixfold.providers import PROVIDERS
from sixfold.settings import Settings

NOTHING = "no GPU, weights, model server or provider key"
# At most 78 characters, because `doctor` prints it within 80 columns.
IN_CONTAINER = f"Model servers are searched at {CONTAINER_HOST} and in SIXFOLD_PROBE_HOSTS."
_PROMPT = "a lighthouse at sunset over a calm sea"


def start(
    paint: TerminalStyle, server_settings: Settings, welcome: FirstRunInfo | None, *, price: str | None
) -> None:
    """Print the address of the server and, on the first start, the account and its key.

    `price` is the price of an image, or None if no engine can generate one. Secrets are printed only to the
    person or program that started the server, because other output may be stored, for example in a journal.
    """
    visible = welcome if server_settings.testing or _is_read_by_caller(paint) else None
    paint.line()
    paint.line(f"  {paint.mark()}  {paint.bold('Sixfold')} {paint.dim(__version__)}")
    paint.line()
    rows = [("address", paint.bold(server_settings.base_url)), ("data", str(server_settings.data_dir))]
    if server_settings.comfyui_port:
        rows.append(("ComfyUI's port", str(server_settings.comfyui_port)))
    if welcome is not None:
        rows.append(("account", f"{welcome.email}, requests are never refused for lack of credit"))
    if visible is not None:
        rows += _owner(paint, server_settings, visible)
    else:
        rows.append(("key", _where_the_key_is(server_settings)))
        rows.append(("sign in", f"{command(server_settings, 'open')} signs in your browser"))
    paint.rows(rows)
    line = curl(server_settings, visible, pictures=price is not None)
    if line:
        paint.line()
        purpose = "to see the account" if price is None else f"to generate an image ({price})"
        paint.line(f"  {paint.dim(f'Paste this {purpose}:')}")
        paint.line()
        # The command is not indented, so a triple click selects it without spaces.
        paint.line(line)
    paint.line()


def _is_read_by_caller(paint: TerminalStyle) -> bool:
    """Return whether the output is a terminal, or a pipe to the process that started the server.

    The init process of a machine or a container stores what it reads from pipes; a journal reads a socket.
    """
    if paint.is_terminal:
        return True
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(paint.stream.fileno()).st_mode)
    except OSError:
        return False
    return is_pipe and os.getpid() != 1 and os.getppid() > 1


def _owner(paint: TerminalStyle, server_settings: Settings, welcome: FirstRunInfo) -> list[tuple[str, str]]:
    key_file = server_settings.data_dir / KEY_FILE
    return [
        ("key", f"{paint.accent(welcome.api_key)}  {paint.dim('shown this once')}"),
        ("", paint.dim(f"stored in {key_file}")),
        ("sign in", f"{server_settings.base_url}/signin?token={welcome.link_token}"),
        ("", paint.dim(f"valid once, within one hour; {command(server_settings, 'open')} creates another")),
    ]


def _where_the_key_is(server_settings: Settings) -> str:
    key_file = server_settings.data_dir / KEY_FILE
    if key_file.exists():
        return f"in {key_file}"
    return f"none is stored here; create one with {command(server_settings, 'key create EMAIL')}"


def command(server_settings: Settings, arguments: str) -> str:
    """Return a command to paste in this folder, with the data folder unless it is the default one."""
    if server_settings.data_dir.absolute() == Settings().data_dir.absolute():
        return f"`sixfold {arguments}`"
    return f"`sixfold {arguments} --data-dir {shlex.quote(str(server_settings.data_dir))}`"


def curl(server_settings: Settings, welcome: FirstRunInfo | None, *, pictures: bool) -> str:
    """Return a curl command to paste: it generates an image, or shows the account if `pictures` is false.

    Returns an empty string if no key is available.
    """
    key_file = server_settings.data_dir / KEY_FILE
    if welcome is None and not key_file.exists():
        return ""
    # Quoting is independent inside `$( )`, even between double quotes.
    key = welcome.api_key if welcome is not None else f"$(cat {shlex.quote(str(key_file))})"
    bearer = f'-H "Authorization: Bearer {key}"'
    if not pictures:
        return f"curl -s {shlex.quote(f'{server_settings.base_url}/api/account')} {bearer}"
    line = f"curl -s {shlex.quote(f'{server_settings.base_url}/api/ra1')} -H 'Content-Type: application/json'"
    body = {"prompt": _PROMPT, "size": "1024x1024"}
    if welcome is not None:
        return f"{line} -d {shlex.quote(json.dumps({'api_key': welcome.api_key, **body}))}"
    return f"{line} {bearer} -d {shlex.quote(json.dumps(body))}"


# Maximum number of a dozen provider keys that the banner names.
_NAMED_KEYS = 4
_SET_KEY = frozenset(f"set {spec.variable}" for spec in PROVIDERS.values())


def print_found(
    paint: TerminalStyle,
    resources: Sequence[Resource],
    *,
    container: bool = False,
    doctor: str = "`sixfold doctor`",
) -> None:
    """Print the resources that were found and how to unlock the rest.

    `container` adds a note on how to reach servers on the host, unless one was found there. `doctor` is the
    command that reports on this server.
    """
    rows = [
        (resource.name, f"{resource.found}  {paint.dim(benefit(resource.unlocks, used=resource.used))}")
        if resource.found
        else (resource.name, resource.how)
        for resource in resources
        if resource.state != "absent"
    ]
    if not any(resource.found for resource in resources):
        lacking = any(resource.kind == "embedded" for resource in resources)
        instead = ", and no embedded engines" if lacking else "; using embedded engines"
        rows.insert(0, ("found", f"{NOTHING}{instead}"))
    paint.rows(rows)
    missing = [
        resource for resource in resources if resource.state == "absent" and resource.how and resource.used
    ]
    if missing:
        first, *more = _ways(missing)
        paint.rows([("unlock more", first), *(("", way) for way in more)])
    if container and not any(on_container_host(resource.url) for resource in resources):
        paint.paragraph(paint.dim(IN_CONTAINER))
    paint.line(
        paint.dim(f"  {doctor} shows which engine serves each model. Press Control-C to stop the server.")
    )
    paint.line()


def _ways(missing: Sequence[Resource]) -> Iterator[str]:
    """Yield one line for each benefit, with all the ways to unlock it, and one for all keys of providers."""
    keys = {
        resource.how: resource.how.removeprefix("set ") for resource in missing if resource.how in _SET_KEY
    }
    local = [resource for resource in missing if resource.how not in keys]
    for unlocks in dict.fromkeys(resource.unlocks for resource in local):
        first, *more_ways = [resource.how for resource in local if resource.unlocks == unlocks]
        word = first.partition(" ")[0]
        yield f"{' or '.join([first, *(how.removeprefix(f'{word} ') for how in more_ways)])} for {unlocks}"
    if keys:
        names = ", ".join(list(keys.values())[:_NAMED_KEYS])
        yield f"set a provider's key, such as {names}: `sixfold provider list` shows all"


def on_container_host(url: str) -> bool:
    return urlsplit(url).hostname == CONTAINER_HOST


def benefit(unlocks: str, *, used: bool) -> str:
    """Return what a resource unlocks, and a note if no engine of this version uses it yet."""
    return f"→ {unlocks}" if used else f"→ {unlocks}, not used by any engine of this version"
