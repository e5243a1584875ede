"""Token deposits: credited once, to the owner of the address, and only when final."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from sixfold.core.accounts import accounts, ledger_queries
from sixfold.core.accounts.accounts import Account
from sixfold.core.database import Database
from sixfold.errors import NotConfigured
from sixfold.payments.erc20 import DepositWatcher
from sixfold.settings import InvalidSetting
from tests.harness import databases
from tests.mcp.loopback import serve

pytest.importorskip("bip_utils", reason="needs the extra `tokens`, which Python 3.14 has no wheels for")

# The public branch m/44'/60'/0' of a well-known test mnemonic, whose first addresses are published.
XPUB = (
    "xpub6DCoCpSuQZB2jawqnGMEPS63ePKWkwWPH4TU45Q7LPXWuNd8TMtVxRrgjtEshuqpK3mdhaWHPFsB"
    "ngh5GFZaM6si3yZdUsT8ddYM3PwnATt"
)
FIRST = "0x9858EfFD232B4033E47d90003D41EC34EcaEda94"
COIN, OTHER_COIN = "0x" + "c0" * 20, "0x" + "0b" * 20
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"


class Node:
    """A fake node with logs by block and a head."""

    def __init__(self) -> None:
        self.head = 100
        self.logs: list[dict[str, Any]] = []
        self.broken = False
        self.max_logs = 1000
        self.origin = ""

    def send(self, to: str, value: int, block: int, *, coin: str = COIN, index: int = 0) -> dict[str, Any]:
        """Add a token transfer to a block."""
        log = {
            "address": coin,
            "topics": [TRANSFER, "0x" + "11".rjust(64, "0"), "0x" + to.lower()[2:].rjust(64, "0")],
            "data": hex(value),
            "blockNumber": hex(block),
            "transactionHash": "0x" + f"{len(self.logs):064x}",
            "logIndex": hex(index),
            "removed": False,
        }
        self.logs.append(log)
        return log

    async def answer(self, request: Request) -> JSONResponse:
        requests = json.loads(await request.body())
        if self.broken:
            return JSONResponse({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "away"}})
        if requests["method"] == "eth_blockNumber":
            result: Any = hex(self.head)
        else:
            expected = requests["params"][0]
            first, last = int(expected["fromBlock"], 16), int(expected["toBlock"], 16)
            result = [
                log
                for log in self.logs
                if first <= int(log["blockNumber"], 16) <= last
                and log["address"] in expected["address"]
                and log["topics"][2] in expected["topics"][2]
            ]
            if len(result) > self.max_logs:
                error = {"code": -32005, "message": "query returned too many results"}
                return JSONResponse({"jsonrpc": "2.0", "id": 1, "error": error})
        return JSONResponse({"jsonrpc": "2.0", "id": 1, "result": result})


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    result = Node()
    app = Starlette(routes=[Route("/", result.answer, methods=["POST"])])
    async with serve(app) as result.origin:
        yield result


@pytest.fixture
async def database(either: Path) -> AsyncIterator[Database]:
    result = databases.open_database(either)
    yield result
    await result.close()


def table(node: Node, **changes: Any) -> Mapping[str, Any]:
    coin = {"symbol": "USDC", "decimals": 6}
    chain = {
        "id": 1,
        "rpc_url": node.origin + "/",
        "confirmations": 10,
        "tokens": {COIN.upper().replace("X", "x"): coin},
    }
    return {"xpub": XPUB, "chains": {"main": chain}, **changes}


@pytest.fixture
async def watcher(node: Node, database: Database) -> AsyncIterator[DepositWatcher]:
    """A deposit watcher that has read its chain once."""
    async with httpx.AsyncClient() as client:
        result = DepositWatcher(client, database, table(node))
        await result.read()
        yield result


async def create_account(database: Database, name: str = "ann") -> Account:
    return await database.write(accounts.create(f"{name}@example.com"))


async def balance(database: Database, account: Account) -> int:
    assert await database.read(ledger_queries.verify()) == ()
    return (await database.read(accounts.by_id(account.id))).posted


async def test_each_account_has_its_own_constant_address(watcher: DepositWatcher, database: Database) -> None:
    people = [await create_account(database, f"p{n}") for n in range(4)]
    response = await asyncio.gather(*(watcher.address(each.id) for each in people for _ in range(2)))
    results = [str(each["address"]) for each in response]
    assert len(set(results)) == 4
    assert results[0::2] == results[1::2]
    assert FIRST in results
    assert response[0]["chains"][0]["tokens"] == [{"contract": COIN, "symbol": "USDC", "decimals": 6}]


async def test_transfer_is_credited_after_its_confirmations(
    watcher: DepositWatcher, node: Node, database: Database
) -> None:
    ann = await create_account(database)
    address = str((await watcher.address(ann.id))["address"])
    node.send(address, 12_340_000, block=101)
    node.head = 110
    assert await watcher.read() == 0
    node.head = 111
    assert await watcher.read() == 1
    assert await watcher.read() == 0
    assert await balance(database, ann) == 12_340_000


async def test_reverted_transfer_is_never_credited(
    watcher: DepositWatcher, node: Node, database: Database
) -> None:
    ann = await create_account(database)
    address = str((await watcher.address(ann.id))["address"])
    node.send(address, 5_000_000, block=101)
    node.head = 105
    await watcher.read()
    node.logs.clear()
    node.send(address, 3_000_000, block=102)
    node.head = 200
    await watcher.read()
    assert await balance(database, ann) == 3_000_000


async def test_only_coins_of_the_list_count_and_only_for_their_owner(
    watcher: DepositWatcher, node: Node, database: Database
) -> None:
    ann, ben = await create_account(database, "ann"), await create_account(database, "ben")
    address = str((await watcher.address(ann.id))["address"])
    await watcher.address(ben.id)
    node.send(address, 1_000_000, block=101, coin=OTHER_COIN)
    node.send(address, 2_000_000, block=101)["removed"] = True
    node.send("0x" + "77" * 20, 4_000_000, block=101)
    node.send(address, 8_000_000, block=102, index=3)
    node.head = 150
    await watcher.read()
    assert (await balance(database, ann), await balance(database, ben)) == (8_000_000, 0)


async def test_a_part_of_a_micro_dollar_is_not_credited(node: Node, database: Database) -> None:
    chain = {**table(node)["chains"]["main"], "tokens": {COIN: {"symbol": "DAI", "decimals": 18}}}
    micro = 10**12
    async with httpx.AsyncClient() as client:
        watcher = DepositWatcher(client, database, table(node, chains={"main": chain}))
        await watcher.read()
        ann = await create_account(database)
        address = str((await watcher.address(ann.id))["address"])
        node.send(address, 5 * micro + micro - 1, block=101)
        node.send(address, micro - 1, block=102)
        node.head = 150
        assert await watcher.read() == 1
    assert await balance(database, ann) == 5


async def test_unreachable_node_loses_no_transfer(
    watcher: DepositWatcher, node: Node, database: Database
) -> None:
    ann = await create_account(database)
    node.send(str((await watcher.address(ann.id))["address"]), 1_000_000, block=2500)
    node.head, node.broken = 5000, True
    assert await watcher.read() == 0
    node.broken = False
    assert await watcher.read() == 1
    assert await balance(database, ann) == 1_000_000


async def test_address_needs_a_reachable_chain(node: Node, database: Database) -> None:
    ann = await create_account(database)
    node.broken = True
    unreachable = {**table(node)["chains"]["main"], "id": 2, "rpc_url": "http://127.0.0.1:9/"}
    async with httpx.AsyncClient() as client:
        both = table(node, chains={**table(node)["chains"], "away": unreachable})
        watcher = DepositWatcher(client, database, both)
        await watcher.read()
        with pytest.raises(NotConfigured, match="rpc_url"):
            await watcher.address(ann.id)
        node.broken = False
        offered = await watcher.address(ann.id)
        assert [each["chain"] for each in offered["chains"]] == ["main"]
        node.send(str(offered["address"]), 1_000_000, block=101)
        node.head = 5000
        assert await watcher.read() == 1
    assert await balance(database, ann) == 1_000_000


async def test_blocks_with_too_many_transfers_are_read_in_parts(
    watcher: DepositWatcher, node: Node, database: Database
) -> None:
    ann = await create_account(database)
    address = str((await watcher.address(ann.id))["address"])
    for block in range(200, 240):
        node.send(address, 1_000_000, block=block)
    node.head, node.max_logs = 900, 3
    assert await watcher.read() == 40
    assert await balance(database, ann) == 40_000_000


async def test_concurrent_servers_credit_a_transfer_once(
    watcher: DepositWatcher, node: Node, database: Database
) -> None:
    ann = await create_account(database)
    node.send(str((await watcher.address(ann.id))["address"]), 1_000_000, block=120)
    node.head = 140
    async with httpx.AsyncClient() as client:
        other = DepositWatcher(client, database, table(node))
        assert sum(await asyncio.gather(watcher.read(), other.read())) == 1
    assert await balance(database, ann) == 1_000_000


async def test_missing_deposit_table_is_reported(database: Database) -> None:
    async with httpx.AsyncClient() as client:
        with pytest.raises(NotConfigured, match=r"sixfold\.toml"):
            await DepositWatcher(client, database, None).address("acct_x")


@pytest.mark.parametrize("changes", [{"xpub": "xpub6nonsense"}, {"chains": {"main": {"id": 1}}}, {"more": 1}])
async def test_invalid_deposit_table_prevents_the_start(node: Node, database: Database, changes: Any) -> None:
    async with httpx.AsyncClient() as client:
        with pytest.raises(InvalidSetting, match="deposits"):
            DepositWatcher(client, database, table(node, **changes))
