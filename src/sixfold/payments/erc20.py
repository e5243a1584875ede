"""Deposits of ERC-20 tokens: one address per account, credited once a transfer is final.

Addresses are the children `0/<number>` of an extended public key (BIP-32), so the server can derive them but
cannot spend from them. Chains are read with `eth_getLogs`, up to the configured number of confirmations
before the head, so a transfer that a reorganization removes was not credited yet.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any, cast

import httpx
import msgspec

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import token_deposits
from sixfold.core.accounts.token_deposits import Transfer
from sixfold.core.database import Database
from sixfold.net import limited_responses
from sixfold.settings import InvalidSetting

_LOG = logging.getLogger("sixfold.deposits")
# Keccak-256 of the event's signature.
_TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
# Blocks and addresses of one query.
_BLOCKS, _ADDRESSES = 1000, 500
_POLL_SECONDS = 15.0
_MAX_BYTES, _CALL_SECONDS = 16 * 2**20, 120.0
_EXTRA = "[deposits] requires the `tokens` extra and Python 3.11 to 3.13: run pip install 'sixfold[tokens]'"
_OFF = "Token deposits are not configured: add a chain to the table [deposits] of sixfold.toml"
_UNREAD = (
    "No chain of [deposits] has been read yet, so deposits could be lost: check rpc_url, or try again later"
)


class ChainError(Exception):
    """A node did not return a usable response; it is queried again later."""


class _TooManyLogs(ChainError):
    """A node refused a query, or its response was too large; a query of fewer blocks may succeed."""


class _Token(msgspec.Struct, forbid_unknown_fields=True):
    symbol: str
    decimals: int


class _LogRow(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    rpc_url: str
    tokens: dict[str, _Token]
    confirmations: int = 12


class _TokenTable(msgspec.Struct, forbid_unknown_fields=True):
    xpub: str
    chains: dict[str, _LogRow]


class TokenChain(msgspec.Struct, frozen=True):
    """A chain; `tokens` is (symbol, decimals) by contract in lower case."""

    name: str
    id: int
    rpc_url: str
    confirmations: int
    tokens: Mapping[str, tuple[str, int]]

    def to_json(self) -> dict[str, Any]:
        """Return the fields that a sender of tokens needs, for JSON."""
        return {
            "chain": self.name,
            "chain_id": self.id,
            "confirmations": self.confirmations,
            "tokens": [
                {"contract": contract, "symbol": symbol, "decimals": decimals}
                for contract, (symbol, decimals) in self.tokens.items()
            ],
        }


class DepositWatcher:
    """The implementation of `token_deposits.TokenDeposits`, which also reads the chains."""

    def __init__(self, client: httpx.AsyncClient, database: Database, table: Any) -> None:
        """Configure from `table`, the setting `[deposits]` or None; raises `InvalidSetting`."""
        self._client = client
        self._database = database
        self._table = _parse(table)
        self._chains = _chains(self._table) if self._table is not None else ()
        if self._chains:
            # An invalid key must fail at startup, not at the first deposit.
            self._derive(0)

    async def address(self, account_id: str) -> Mapping[str, Any]:
        """Return an account's address and the tokens accepted on each chain.

        A chain that was never read is left out, because its transfers before the first read are not credited.
        """
        if not self._chains:
            raise errors.NotConfigured(_OFF)
        chains = [chain for chain in self._chains if await self._is_read(chain)]
        if not chains:
            raise errors.NotConfigured(_UNREAD)
        address = await self._database.write(token_deposits.address_of(account_id, self._derive))
        return {"address": address, "chains": [chain.to_json() for chain in chains]}

    async def _is_read(self, chain: TokenChain) -> bool:
        """Return whether a chain has been read, reading it now if necessary."""
        if await self._database.read(token_deposits.last_block(chain.name)) is None:
            try:
                await self._read(chain)
            except ChainError:
                return False
        return True

    def _derive(self, number: int) -> str:
        return str(self._bip.EthAddrEncoder.EncodeKey(self._branch.ChildKey(number).PublicKey().KeyObject()))

    @cached_property
    def _bip(self) -> Any:
        try:
            return importlib.import_module("bip_utils")
        except ModuleNotFoundError as error:
            raise InvalidSetting(_EXTRA) from error

    @cached_property
    def _branch(self) -> Any:
        assert self._table is not None  # noqa: S101 - there are chains only where there is a table
        try:
            return self._bip.Bip32Slip10Secp256k1.FromExtendedKey(self._table.xpub).ChildKey(0)
        except (ValueError, self._bip.Bip32KeyError, self._bip.Base58ChecksumError) as error:
            raise InvalidSetting("[deposits] xpub must be an extended public key") from error

    # -- reading the chains ----------------------------------------------------------------------

    async def run(self) -> None:
        """Read all chains periodically until canceled."""
        while self._chains:
            await self.read()
            await asyncio.sleep(_POLL_SECONDS)

    async def read(self) -> int:
        """Read all chains once; return the number of credited transfers."""
        credited = 0
        for chain in self._chains:
            try:
                credited += await self._read(chain)
            except (ChainError, errors.StoreFailed) as error:
                _LOG.warning("a chain could not be read", extra={"chain": chain.name, "reason": str(error)})
        return credited

    async def _read(self, chain: TokenChain) -> int:
        last = _parse_hex(await self._call(chain, "eth_blockNumber")) - chain.confirmations
        first = await self._database.read(token_deposits.last_block(chain.name))
        if first is None:
            # No account was offered this chain yet.
            await self._database.write(token_deposits.credit_transfers(chain.name, max(0, last), ()))
            return 0
        owners = list(await self._database.read(token_deposits.addresses()))
        credited, blocks = 0, _BLOCKS
        while first < last:
            end = min(first + blocks, last)
            try:
                transfers = await self._transfers(chain, first + 1, end, owners)
            except _TooManyLogs:
                if end == first + 1:
                    raise
                blocks = (end - first) // 2
                continue
            credited += await self._database.write(
                token_deposits.credit_transfers(chain.name, end, transfers)
            )
            first = end
        return credited

    async def _transfers(self, chain: TokenChain, first: int, last: int, owners: list[str]) -> list[Transfer]:
        """Return the transfers to this server's addresses within a range of blocks."""
        by_topic = {_topic(address): address for address in owners}
        topics = list(by_topic)
        transfers: list[Transfer] = []
        for start in range(0, len(topics), _ADDRESSES):
            query = {
                "fromBlock": hex(first),
                "toBlock": hex(last),
                "address": list(chain.tokens),
                "topics": [_TRANSFER, None, topics[start : start + _ADDRESSES]],
            }
            logs = await self._call(chain, "eth_getLogs", query)
            if not isinstance(logs, list):
                raise ChainError("eth_getLogs did not return a list")
            for log in cast("list[Any]", logs):
                transfer = _transfer(chain, log, by_topic, (first, last))
                if transfer is not None:
                    transfers.append(transfer)
        return transfers

    async def _call(self, chain: TokenChain, method: str, *params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}
        try:
            response = await limited_responses.request(
                self._client, "POST", chain.rpc_url, json=body, max_bytes=_MAX_BYTES, seconds=_CALL_SECONDS
            )
            payload = await limited_responses.json_object(response.body)
        except limited_responses.UnreadableResponse as error:
            raise _TooManyLogs(f"{method}: {error}") from error
        except httpx.HTTPError as error:
            raise ChainError(f"{method}: {type(error).__name__}") from error
        if "result" not in payload:
            raise _TooManyLogs(f"{method}: {str(payload.get('error'))[:200]}")
        return payload["result"]


def _transfer(
    chain: TokenChain, log: Any, by_topic: Mapping[str, str], blocks: tuple[int, int]
) -> Transfer | None:
    """Parse a log row; None if it is irrelevant or was removed by a reorganization."""
    try:
        token = chain.tokens.get(str(log["address"]).lower())
        address = by_topic.get(str(log["topics"][2]).lower())
        block, index = _parse_hex(log["blockNumber"]), _parse_hex(log["logIndex"])
        position = f"{str(log['transactionHash']).lower()}:{index}"
        value = int(str(log["data"]), 16)
        if log["topics"][0] != _TRANSFER or len(log["topics"]) != 3:
            return None
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ChainError("a log entry is invalid") from error
    if token is None or address is None or log.get("removed") or not blocks[0] <= block <= blocks[1]:
        return None
    symbol, decimals = token
    micros = value * money.MICROS_PER_USD // 10**decimals
    return Transfer(chain.name, position, address, symbol, min(micros, 2**53))


def _parse_hex(text: Any) -> int:
    if not isinstance(text, str):
        raise ChainError(f"{text!r} is not a hexadecimal number")
    try:
        return int(text, 16)
    except ValueError as error:
        raise ChainError(f"{text!r} is not a hexadecimal number") from error


def _topic(address: str) -> str:
    return "0x" + address.lower().removeprefix("0x").rjust(64, "0")


def _parse(table: Any) -> _TokenTable | None:
    if table is None:
        return None
    try:
        return msgspec.convert(table, _TokenTable)
    except msgspec.ValidationError as error:
        raise InvalidSetting(f"[deposits] {error}") from error


def _chains(table: _TokenTable) -> tuple[TokenChain, ...]:
    return tuple(
        TokenChain(
            name,
            row.id,
            row.rpc_url,
            row.confirmations,
            {contract.lower(): (token.symbol, token.decimals) for contract, token in row.tokens.items()},
        )
        for name, row in table.chains.items()
    )
