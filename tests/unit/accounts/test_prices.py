"""Every price of the contract: cost, credits, and the remaining balance."""

from __future__ import annotations

from pathlib import Path

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core import money
from sixfold.core.accounts import accounts, ledger, ledger_queries
from sixfold.core.accounts.prices import PriceTable, Rate
from sixfold.core.database import Transaction
from sixfold.settings import Settings
from tests.harness import databases

# Name, quantity, variant, cost and credits of each row of the price table.
CONTRACT = [
    ("ra1", 1, None, "0.04", 4),
    ("ra2", 1, None, "0.04", 4),
    ("anime", 1, None, "0.007", 1),
    ("anime", 3, None, "0.021", 3),
    ("anime", 8, None, "0.056", 8),
    ("photoreal", 1, "1K", "0.07", 7),
    ("photoreal", 1, "2K", "0.07", 7),
    ("photoreal", 1, "4K", "0.15", 15),
    ("smart-resize", 1, None, "0.24", 24),
    ("smart-resize", 3, None, "0.60", 60),
    ("video-a", 1, None, "0.30", 30),
    ("video-b", 1, None, "0.05", 5),
    ("video-c", 5, None, "0.36", 36),
    ("video-text", 20, None, "0.96", 96),
    ("video-image", 5, None, "0.24", 24),
    ("ra2v", 1, None, "1.00", 100),
    ("remove-background", 1, None, "0.02", 2),
    ("remove-background-video", 1, None, "0.50", 50),
    ("render", 7.3, None, "0.073", 8),
    ("image-to-video-action", 1, None, "0.58", 58),
    ("create_image", 1, None, "0.04", 4),
    ("tts", 1, None, "0.002", 1),
    ("forecast", 1, None, "0.001", 1),
    ("caption", 1, None, "0.002", 1),
    ("vision", 1, None, "0.002", 1),
    ("stt", 1, None, "0.006", 1),
    ("embeddings", 1, None, "0.0001", 1),
    ("custom", 1, None, "0.04", 4),
    ("training", 1, None, "1.00", 100),
]


@pytest.fixture(scope="module")
def table() -> PriceTable:
    return app_catalog.price_table(Settings())


@pytest.mark.parametrize(("name", "quantity", "variant", "cost", "cents"), CONTRACT)
def test_price_equals_that_of_the_contract(
    table: PriceTable, name: str, quantity: float, variant: str | None, cost: str, cents: int
) -> None:
    price = table[name].price(quantity, variant)
    assert (price.cost, price.credits) == (cost, cents)


@pytest.mark.parametrize(("name", "quantity", "variant", "cost", "cents"), CONTRACT)
async def test_charge_reduces_the_balance_by_exactly_the_price(
    tmp_path: Path, table: PriceTable, name: str, quantity: float, variant: str | None, cost: str, cents: int
) -> None:
    price = table[name].price(quantity, variant)

    def spend(account_id: str) -> Transaction[None]:
        yield from ledger.hold(account_id, "hold", price.micros)
        yield from ledger.capture("hold", price.micros, ledger.LedgerEntry("charge", name))

    async with databases.running_database(None, tmp_path) as database:
        account = await database.write(accounts.create("a@example.com", credit=10_000_000))
        await database.write(spend(account.id))
        left = await database.read(accounts.by_id(account.id))
        assert left.posted == 10_000_000 - money.parse_usd(cost)
        assert cents == price.credits


def test_every_price_of_the_table_is_tested(table: PriceTable) -> None:
    # Three cost the same as create_image, and a recording of a session is free.
    alike = {"create_image_klein", "style-transfer", "image-fill", "live-recording"}
    assert set(table.names()) - alike == {name for name, *_ in CONTRACT}


def test_a_part_of_a_unit_is_rounded_up_to_the_micro_dollar() -> None:
    rate = Rate("second", 1, 0, None, {})
    assert rate.price(0.001).micros == 1
    assert rate.price(1).micros == 1


def test_configured_price_overrides_the_bundled_one() -> None:
    own = app_catalog.price_table(Settings(tables={"prices": {"ra1": {"usd": "0.05"}}}))
    assert own["ra1"].price().cost == "0.05"
    assert own["anime"].price().cost == "0.007"


def test_negative_price_is_refused() -> None:
    with pytest.raises(ValueError, match="ra1 must not be negative"):
        PriceTable({"ra1": {"per": "image", "usd": "-1"}})


async def test_refund_returns_the_captured_amount_once(tmp_path: Path) -> None:
    entry = ledger.LedgerEntry("refund", "it was of no use")

    def spend(account_id: str) -> Transaction[None]:
        yield from ledger.hold(account_id, "hold", 50)
        yield from ledger.capture("hold", 40, entry)

    async with databases.running_database(None, tmp_path) as database:
        account = await database.write(accounts.create("a@example.com", credit=100))
        assert await database.write(ledger.refund("hold", entry)) == 0
        await database.write(spend(account.id))
        assert await database.write(ledger.refund("hold", entry)) == 40
        assert await database.write(ledger.refund("hold", entry)) == 0
        assert (await database.read(accounts.by_id(account.id))).posted == 100
        assert await database.read(ledger_queries.verify()) == ()
