"""The tool that renames, on a tiny repository: moves, scopes, strings, symbols, positions of attributes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.renames import __main__ as renames
from tools.renames import attributes, modules, replacements, symbols

RUFF = Path(sys.executable).with_name("ruff")

FILES = {
    "src/shop/__init__.py": "",
    "src/shop/cart.py": "class Box:\n    size = 1\n\n\nLIMIT = 2\n",
    "src/shop/money/__init__.py": "",
    "src/shop/money/till.py": "def pay(amount: int) -> int:\n    return amount\n",
    "src/shop/cli.py": 'COMMANDS = {"pay": "money.till:pay"}\n',
    "tests/__init__.py": "",
}


class Repository:
    """A repository of a few files, and the tables that are applied to it."""

    def __init__(self, root: Path, tables: Path) -> None:
        self.root, self.tables = root, tables
        modules.git(root, "init", "--quiet")
        modules.git(root, "config", "user.name", "test")
        modules.git(root, "config", "user.email", "test@example.com")
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        """Write a file and add it to the index."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        modules.git(self.root, "add", "--all")

    def table(self, name: str, *lines: str) -> Path:
        """Write a table."""
        path = self.tables / name
        path.write_text("\n".join(["# shop: rename", *lines]) + "\n", encoding="utf-8")
        return path

    def text(self, name: str) -> str:
        """Return the text of a file."""
        return (self.root / name).read_text(encoding="utf-8")

    def move(self, *lines: str) -> list[str]:
        """Apply a table of moves."""
        return modules.apply(self.root, self.table("1.modules", *lines))

    def rename(self, *lines: str) -> list[str]:
        """Apply a table of symbols."""
        return symbols.apply(self.root, self.table("2.symbols", *lines))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    (tmp_path / "root").mkdir()
    (tmp_path / "tables").mkdir()
    return Repository(tmp_path / "root", tmp_path / "tables")


def test_a_module_moves_into_a_package_of_its_own_name(repository: Repository) -> None:
    repository.write("src/shop/use.py", "from shop import cart\n\nSIZE = cart.Box.size\n")
    assert repository.move("shop.cart -> shop.cart.boxes") == []
    assert "class Box" in repository.text("src/shop/cart/boxes.py")
    assert repository.text("src/shop/cart/__init__.py") == ""
    assert not (repository.root / "src/shop/cart.py").exists()
    assert repository.text("src/shop/use.py") == "from shop.cart import boxes\n\nSIZE = boxes.Box.size\n"


def test_a_package_moves_with_the_files_in_it(repository: Repository) -> None:
    repository.write("src/shop/money/rates.json", "{}")
    repository.write("docs/money.md", "See `src/shop/money/till.py` and `shop.money.till`.\n")
    assert repository.move("shop.money -> shop.payments", "shop.money.till -> shop.payments.billing") == []
    assert repository.text("src/shop/payments/rates.json") == "{}"
    assert "def pay" in repository.text("src/shop/payments/billing.py")
    assert (
        repository.text("docs/money.md")
        == "See `src/shop/payments/billing.py` and `shop.payments.billing`.\n"
    )


def test_an_import_inside_a_function_is_renamed_with_its_uses(repository: Repository) -> None:
    inside = "def pay() -> int:\n    from shop.money import {0}\n\n    return {0}.pay(1)\n"
    repository.write("src/shop/use.py", inside.format("till"))
    repository.move("shop.money.till -> shop.money.billing")
    assert repository.text("src/shop/use.py") == inside.format("billing")


def test_a_local_variable_is_no_use_of_the_module(repository: Repository) -> None:
    local = "def count(till: int) -> int:\n    return till\n"
    use = "\n\ndef pay() -> int:\n    return {0}.pay(2)\n\n\n"
    repository.write("src/shop/use.py", "from shop.money import till\n" + use.format("till") + local)
    repository.move("shop.money.till -> shop.money.billing")
    assert (
        repository.text("src/shop/use.py")
        == "from shop.money import billing\n" + use.format("billing") + local
    )


def test_a_local_variable_of_the_new_name_gives_the_import_a_longer_one(repository: Repository) -> None:
    text = (
        "from shop.money import till\n\n\ndef pay() -> int:\n    billing = till.pay(2)\n    return billing\n"
    )
    repository.write("src/shop/use.py", text)
    report = repository.move("shop.money.till -> shop.money.billing")
    assert report == ["src/shop/use.py: billing is in use; till becomes money_billing"]
    assert repository.text("src/shop/use.py").splitlines() == [
        "from shop.money import billing as money_billing",
        "",
        "",
        "def pay() -> int:",
        "    billing = money_billing.pay(2)",
        "    return billing",
    ]


def test_a_field_may_have_the_name_of_the_module_of_its_type(repository: Repository) -> None:
    repository.write("src/shop/use.py", "from shop import cart\n\n\nclass Order:\n    cart: cart.Box\n")
    repository.move("shop.cart -> shop.boxes")
    assert repository.text("src/shop/use.py").endswith("class Order:\n    cart: boxes.Box\n")


def test_what_is_not_there_is_reported(repository: Repository) -> None:
    assert repository.move("shop.lost -> shop.found") == ["not found: shop.lost"]
    assert repository.rename("shop.cart:Lost -> Found") == ["not found: shop.cart:Lost"]


def test_a_module_that_stays_in_a_dissolved_package_is_reported(repository: Repository) -> None:
    assert repository.move("shop.money -> -") == ["stays in a package that is dissolved: shop.money.till"]
    assert "def pay" in repository.text("src/shop/money/till.py")
    assert repository.move("shop.money -> -", "shop.money.till -> shop.billing") == []
    assert "def pay" in repository.text("src/shop/billing.py")


def test_two_modules_do_not_move_to_one_place(repository: Repository) -> None:
    with pytest.raises(SystemExit, match=r"several modules move to shop\.one"):
        repository.move("shop.cart -> shop.one", "shop.cli -> shop.one")


def test_a_class_is_renamed_in_a_quoted_annotation(repository: Repository) -> None:
    text = (
        'from shop.cart import {0}\n\n\ndef first(boxes: "list[{0}]") -> "{0}":\n    """Return a `{0}`."""\n'
    )
    repository.write("src/shop/use.py", text.format("Box"))
    assert repository.rename("shop.cart:Box -> CartBox") == []
    assert repository.text("src/shop/use.py") == text.format("CartBox")
    assert repository.text("src/shop/cart.py").startswith("class CartBox:")


def test_a_class_is_renamed_through_its_module_and_in_references(repository: Repository) -> None:
    text = 'from shop import cart\n\nBOX = cart.{0}()\nPLACE = "shop.cart:{0}"\nsetattr(cart, "{0}", None)\n'
    repository.write("src/shop/use.py", text.format("Box"))
    repository.rename("shop.cart:Box -> CartBox")
    assert repository.text("src/shop/use.py") == text.format("CartBox")


def test_a_string_of_module_and_attribute_follows_the_move(repository: Repository) -> None:
    repository.write("src/shop/use.py", 'FACTORY = "shop.money.till:pay"\n')
    repository.move("shop.money.till -> shop.money.billing")
    assert repository.text("src/shop/use.py") == 'FACTORY = "shop.money.billing:pay"\n'
    lines = ("[[relative]]", "folder = 'src/shop'", "package = 'shop'", "table = '1.modules'")
    assert replacements.apply(repository.root, repository.table("3.toml", *lines)) == []
    assert repository.text("src/shop/cli.py") == 'COMMANDS = {"pay": "money.billing:pay"}\n'


def test_a_replacement_without_its_text_is_reported(repository: Repository) -> None:
    lines = ("[[replace]]", "file = 'src/shop/cart.py'", "old = 'LIMIT = 2'", "new = 'LIMIT = 3'")
    table = repository.table("3.toml", *lines)
    assert replacements.apply(repository.root, table) == []
    assert repository.text("src/shop/cart.py").endswith("LIMIT = 3\n")
    assert replacements.apply(repository.root, table) == ["not found: src/shop/cart.py: LIMIT = 2"]


@pytest.mark.skipif(not RUFF.exists(), reason="ruff is not installed: `make check` installs it")
def test_each_table_is_a_commit(repository: Repository) -> None:
    modules.git(repository.root, "commit", "--quiet", "--message", "shop: begin")
    renames.apply(repository.root, repository.table("1.modules", "shop.cart -> shop.boxes"))
    renames.apply(repository.root, repository.table("2.symbols", "shop.boxes:Box -> CartBox"))
    assert modules.git(repository.root, "log", "--format=%s").split("\n")[:3] == ["shop: rename"] * 2 + [
        "shop: begin"
    ]
    assert modules.git(repository.root, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("dotted", "line", "name"),
    [("Box.open", 3, "open"), ("Box.size", 1, "size"), ("Box.lid", 4, "lid"), ("pay.amount", 7, "amount")],
)
def test_an_attribute_is_found_where_it_is_defined(dotted: str, line: int, name: str) -> None:
    text = (
        "class Box:\n    size: int\n\n    def open(self):\n        self.lid = 1\n\n\ndef pay(amount): ...\n"
    )
    found = attributes.position(text, dotted)
    assert found is not None
    assert found[0] == line
    assert text.splitlines()[line][found[1] :].startswith(name)


def test_every_table_of_the_project_has_a_title_and_is_read() -> None:
    for table in renames.TABLES.iterdir():
        assert table.suffix in renames.STEPS, table.name
        assert 0 < len(renames.title(table)) <= 72
        assert ": " in renames.title(table)
