"""The functions of the laws: each detects a breach and accepts valid code."""

from __future__ import annotations

import argparse
import ast
import socket
import textwrap

import pytest

from sixfold.clients import local_servers
from tests.architecture import source, test_documented, test_machine_paths, test_shape
from tools import lock


def function(code: str) -> source.FunctionOutline:
    return source.outline_of(ast.parse(code)).functions[0]


@pytest.mark.parametrize(
    ("handler", "broad"),
    [
        ("except Exception: pass", True),
        ("except (ValueError, BaseException): pass", True),
        ("except: pass", True),
        ("except ValueError: pass", False),
        ("except Exception:\n undo()\n raise", False),
        ("except Exception as error:\n raise Known() from error", False),
        ("except Exception:\n raise Known()", True),
    ],
)
def test_broad_handler_is_reported_unless_it_reraises(handler: str, broad: bool) -> None:
    body = textwrap.indent(f"try: work()\n{handler}", "    ")
    assert function(f"def f():\n{body}").catch_all == ((3,) if broad else ())


def test_a_docstring_does_not_count_as_length() -> None:
    assert function('@one\n@two\ndef f():\n    """A.\n\n    B.\n    """\n    return 1\n').lines == 4


@pytest.mark.parametrize(
    "name", ["utils", "string_utils", "helpers", "worker_manager", "store_part2", "misc"]
)
def test_vague_module_name_is_reported(name: str) -> None:
    assert test_shape.VAGUE_MODULE.fullmatch(name)


@pytest.mark.parametrize("name", ["ledger", "partition", "management", "department", "commons"])
def test_noun_is_not_a_vague_module_name(name: str) -> None:
    assert not test_shape.VAGUE_MODULE.fullmatch(name)


@pytest.mark.parametrize(
    ("line", "good"),
    [
        ("x = 1  # " + "noqa: S104  # it listens on purpose", True),
        ("x = 1  # " + "noqa: S104, E501 - it listens on purpose", True),
        ("x = 1  # " + "noqa: S104", False),
        ("x = 1  # " + "noqa", False),
        ("x = 1  # " + "type: ignore[arg-type]  # the stub is wrong here", False),
        ("x = 1  # " + "pyright: ignore[reportPrivateUsage]  # no public way", True),
        ("x = 1  # " + "pyright: ignore  # no public way", False),
    ],
)
def test_a_silenced_rule_needs_its_name_and_a_reason(line: str, good: bool) -> None:
    assert test_shape.says_why(line) is good


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("see /" + "work/notes", True),
        ("'/" + "root/.cache'", True),
        ("https://" + "pypi" + ".org/simple", True),
        ("src/sixfold/core/catalog/engines.py", False),
        ("/media/work/1", False),
        ("{data}/work/1", False),
    ],
)
def test_path_of_a_machine_is_reported(text: str, is_found: bool) -> None:
    assert bool(test_machine_paths.ELSEWHERE.search(text)) is is_found


def test_test_without_an_assertion_is_reported() -> None:
    assert not test_shape.asserts(function("def test_x():\n    run()\n"), frozenset())
    assert test_shape.asserts(function("def test_x():\n    assert run()\n"), frozenset())
    assert test_shape.asserts(
        function("def test_x():\n    suite.balance_holds()\n"), frozenset({"balance_holds"})
    )


def test_every_command_and_long_option_of_a_parser_is_listed() -> None:
    parser = argparse.ArgumentParser()
    command = parser.add_subparsers().add_parser("serve")
    command.add_argument("--port", "-p")
    command.add_argument("--secret", help=argparse.SUPPRESS)
    options = list(test_documented.options(parser, "sixfold"))
    assert options == [("sixfold", ""), ("sixfold serve", ""), ("sixfold serve", "--port")]


def test_a_lock_is_split_into_its_pins() -> None:
    first, second = "first==1", "second==2 ; sys_platform == 'win32'"
    text = f"# a comment\n{first} \\\n    --hash=sha256:aa\n{second} \\\n    --hash=sha256:bb\n"
    assert list(lock.blocks(text)) == [first, second]
    assert [lock.name_of(pin) for pin in lock.blocks(text)] == ["first", "second"]


def test_no_test_can_reach_the_network() -> None:
    with pytest.raises(RuntimeError, match="may not reach"):
        socket.getaddrinfo("example.com", 80)
    with socket.socket() as sock, pytest.raises(RuntimeError, match="may not reach"):
        sock.connect(("192.0.2.1", 80))


def test_no_test_finds_the_model_servers_of_this_machine() -> None:
    for server in (*local_servers.CHAT, local_servers.COMFYUI):
        with socket.socket() as sock, pytest.raises(ConnectionRefusedError, match="servers of this machine"):
            sock.connect(("127.0.0.1", server.port))


def test_tests_can_reach_this_machine() -> None:
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())
        assert client.getpeername() == server.getsockname()
