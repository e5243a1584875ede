"""Accounts: owners of API keys, balance, media and memory."""

from __future__ import annotations

import re
import secrets

import msgspec

from sixfold import errors
from sixfold.core import ids, money
from sixfold.core.accounts import audit_log, ledger, rights
from sixfold.core.accounts.keys import Budget, Principal, lower_budget
from sixfold.core.database import Query, Row, Transaction, one

LOCAL_EMAIL = "local@localhost"
_EMAIL = re.compile(r"[^@\s<>\"'\x00-\x1f]{1,64}@[^@\s<>\"'\x00-\x1f]{1,190}")


class Account(msgspec.Struct, frozen=True):
    """An account; amounts are in micro-dollars, and `posted` is the balance including the amount `held`.

    For an organization without a sign-in, `email` is a handle without an `@`.
    """

    id: str
    kind: str
    email: str
    posted: int
    held: int
    plan: str
    password_hash: str | None
    closing_at: int | None = None
    # Only an operator can cancel this deletion.
    closed_by_operator: bool = False
    budget_day: int | None = None
    budget_month: int | None = None
    # The budgets that only the operator changes.
    operator_day: int | None = None
    operator_month: int | None = None
    suspended_at: int | None = None
    # The credit that the first sign-in books.
    invitation_credit: int | None = None

    @classmethod
    def of(cls, row: Row) -> Account:
        """Build an account from a database row."""
        return cls(
            id=row["id"],
            kind=row["kind"],
            email=row["email"] or "",
            posted=row["posted"],
            held=row["held"],
            plan=row["plan"],
            password_hash=row["password_hash"],
            closing_at=row["closing_at"],
            closed_by_operator=bool(row["closed_by_operator"]),
            budget_day=row["budget_day"],
            budget_month=row["budget_month"],
            operator_day=row["operator_day"],
            operator_month=row["operator_month"],
            suspended_at=row["suspended_at"],
            invitation_credit=row["invitation_credit"],
        )

    @property
    def is_operator(self) -> bool:
        """Whether this is the account of the operator, who runs this server."""
        return self.kind == "operator"

    @property
    def has_sign_in(self) -> bool:
        """Whether a user can sign in to this account: its name is an e-mail address, not a handle."""
        return "@" in self.email

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets of the organization, if it has budgets: the lower of its own and the operator's."""
        day = lower_budget(self.budget_day, self.operator_day)
        month = lower_budget(self.budget_month, self.operator_month)
        return () if day is None and month is None else (Budget(self.id, day, month),)

    @property
    def owner(self) -> Principal:
        """The principal of the account's owner with all rights of the account, as the CLI uses it."""
        owner_rights = rights.ALL if self.is_operator else rights.STANDARD
        below_zero = self.kind == "customer" and self.posted - self.held < 0
        return Principal(
            self.id,
            self.kind,
            self.email,
            rights=owner_rights,
            authentication="local",
            below_zero=below_zero,
            budgets=self.budgets,
            suspended=self.suspended_at is not None,
        )

    @property
    def is_never_refused(self) -> bool:
        """Whether requests are accepted even if the balance is negative."""
        return self.is_operator


def create(email: str, *, credit: int = 0, operator: bool = False) -> Transaction[Account]:
    """Create an account with `credit` micro-dollars and return it.

    Raises `BadRequest` for an invalid e-mail address and `Conflict` if an account already uses it.
    """
    address = email.strip().lower()
    if not is_email(address):
        raise errors.BadRequest(f"{email!r} is not an e-mail address")
    account_id = ids.new("acct")
    inserted = yield Query(
        "account_insert",
        {
            "id": account_id,
            "kind": "operator" if operator else "customer",
            "email": address,
            "can_go_negative": int(operator),
            "author_id": f"user_{secrets.token_hex(16)}",
        },
    )
    if not inserted:
        raise errors.Conflict(f"An account with the e-mail address {address} already exists")
    if credit:
        yield from _require_in_range(account_id, credit)
        entry = ledger.LedgerEntry("credit", f"Opening credit of {money.format_usd(credit)} USD")
        yield from ledger.deposit(account_id, credit, entry)
    yield from audit_log.note(account_id, "account.create", address)
    return (yield from by_id(account_id))


def is_email(text: str) -> bool:
    """Return whether a string has the form of an e-mail address."""
    return _EMAIL.fullmatch(text) is not None


def credit(email: str, amount: int, reason: str = "", transfer_id: str | None = None) -> Transaction[Account]:
    """Add `amount` micro-dollars to an account, with a reason for its ledger; return the account.

    A positive amount ends the account's request for credit. A negative amount is withdrawn. Raises
    `BadRequest` if it exceeds a customer's available balance, or if a balance would exceed
    `ledger.MAX_BALANCE`.
    """
    account = yield from by_email(email)
    if amount < 0 and not account.is_operator and account.posted - account.held + amount < 0:
        raise errors.BadRequest(f"{account.email} has less than {money.format_usd(-amount)} USD available")
    if amount == 0:
        raise errors.BadRequest("The amount must not be 0")
    yield from _require_in_range(account.id, amount)
    text = f"Credit by the operator: {reason}" if reason else "Credit by the operator"
    yield from ledger.deposit(account.id, amount, ledger.LedgerEntry("credit", text), transfer_id)
    yield from audit_log.note(account.id, "account.credit", money.format_usd(amount))
    if amount > 0:
        yield Query("credit_request_end", {"id": account.id})
    return (yield from by_id(account.id))


def _require_in_range(account_id: str, amount: int) -> Transaction[None]:
    params = {"account_id": account_id, "amount": amount, "limit": ledger.MAX_BALANCE}
    if abs(amount) > ledger.MAX_BALANCE or (yield Query("ledger_out_of_range", params)):
        most = money.format_usd(ledger.MAX_BALANCE)
        raise errors.BadRequest(
            f"The balances of accounts must be at most {most} USD together: credit less "
            f"(got {money.format_usd(amount)})"
        )


def accept_invitation(account_id: str) -> Transaction[None]:
    """Book the credit of the invitation of an account, once; do nothing if there is none."""
    row = yield from one("invitation_credit", id=account_id)
    if row is not None and (yield Query("invitation_credit_take", {"id": account_id})):
        yield from credit(row["email"], row["amount"], row["reason"])


def by_id(account_id: str) -> Transaction[Account]:
    """Return an account; raises `NotFound`."""
    row = yield from one("account_by_id", id=account_id)
    if row is None:
        raise errors.NotFound("Account not found")
    return Account.of(row)


def by_email(email: str) -> Transaction[Account]:
    """Return the account with an e-mail address; raises `NotFound`."""
    row = yield from one("account_by_email", email=email.strip().lower())
    if row is None:
        raise errors.NotFound(f"Account {email} not found: create it with `sixfold account create {email}`")
    return Account.of(row)


def operator() -> Transaction[Account | None]:
    """Return the operator's account, or None before it is created."""
    row = yield from one("account_operator")
    return Account.of(row) if row is not None else None


def people() -> Transaction[tuple[Account, ...]]:
    """Return the accounts of the operator and of all customers, oldest first."""
    rows = yield Query("account_people", {})
    return tuple(Account.of(row) for row in rows)


def require_password_hash(account_id: str, password_hash: str | None) -> Transaction[None]:
    """Raise `Unauthenticated` if the hash against which a password was checked has been replaced since."""
    account = yield from by_id(account_id)
    if account.password_hash != password_hash:
        raise errors.Unauthenticated("The password was changed at the same time: sign in with the new one")


def set_password_hash(account_id: str, password_hash: str) -> Transaction[None]:
    """Replace an account's password hash, which the caller computes, as hashing would block the writer."""
    yield Query("account_set_password", {"id": account_id, "password_hash": password_hash})
    yield from audit_log.note(account_id, "account.password", "")
