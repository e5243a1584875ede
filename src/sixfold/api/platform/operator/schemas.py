"""The JSON of the operator's accounts and actions, and their operations in the OpenAPI document."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

import msgspec

from sixfold.core import money
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.operation.actions import OperatorAction
from sixfold.core.clock import rfc3339
from sixfold.core.database import Row
from sixfold.web import openapi
from sixfold.web.openapi import OperationSpec

# Of lists: the default and the largest number of rows, and the longest text of a query parameter.
PAGE, MAX_PAGE, MAX_TEXT = 50, 200, 200
_Amount = str | float | None


class CustomerSchema(TypedDict):
    """An account as the operator sees it; lists include the number of keys and their last use.

    The first sign-in adds `pending_credit_usd`, and the account is erased at `closing_at`; both may be null.
    """

    account_id: str
    kind: str
    email: str
    balance_usd: str
    held_usd: str
    plan: str
    budget_day_usd: str | None
    budget_month_usd: str | None
    pending_credit_usd: str | None
    suspended_at: str | None
    closing_at: str | None
    created_at: NotRequired[str | None]
    keys: NotRequired[int]
    used_at: NotRequired[str | None]


class InvitedCustomerSchema(CustomerSchema):
    """A new account; `url` signs in to it once within 7 days."""

    url: str


class OperatorActionSchema(TypedDict):
    """An action of an operator; `before` and `after` are null without a value."""

    id: str
    actor: str
    action: str
    target: str
    before: str | None
    after: str | None
    created_at: str | None


def of_account(account: Account) -> CustomerSchema:
    return {
        "account_id": account.id,
        "kind": account.kind,
        "email": account.email,
        "balance_usd": money.format_usd(account.posted),
        "held_usd": money.format_usd(account.held),
        "plan": account.plan,
        "budget_day_usd": _usd(account.operator_day),
        "budget_month_usd": _usd(account.operator_month),
        "pending_credit_usd": _usd(account.invitation_credit),
        "suspended_at": rfc3339(account.suspended_at),
        "closing_at": rfc3339(account.closing_at),
    }


def account(row: Row) -> CustomerSchema:
    return {
        "account_id": row["id"],
        "kind": row["kind"],
        "email": row["email"],
        "balance_usd": money.format_usd(row["posted"]),
        "held_usd": money.format_usd(row["held"]),
        "plan": row["plan"],
        "budget_day_usd": _usd(row["operator_day"]),
        "budget_month_usd": _usd(row["operator_month"]),
        "pending_credit_usd": _usd(row["invitation_credit"]),
        "suspended_at": rfc3339(row["suspended_at"]),
        "closing_at": rfc3339(row["closing_at"]),
        "created_at": rfc3339(row["created_at"]),
        "keys": row["keys"],
        "used_at": rfc3339(row["used_at"]),
    }


def action(each: OperatorAction) -> OperatorActionSchema:
    return {
        "id": each.id,
        "actor": each.actor,
        "action": each.action,
        "target": each.target,
        "before": each.before or None,
        "after": each.after or None,
        "created_at": rfc3339(each.created_at),
    }


def _usd(micros: int | None) -> str | None:
    return None if micros is None else money.format_usd(micros)


def _request(title: str, required: dict[str, Any], optional: dict[str, Any]) -> type[msgspec.Struct]:
    fields = [*required.items(), *((name, kind, None) for name, kind in optional.items())]
    return msgspec.defstruct(f"{title}Schema", fields)


def operations() -> dict[str, OperationSpec]:
    root = "/api/operator"
    account_path = f"{root}/accounts/{{account_id}}"
    changed = {200: openapi.response("The account", CustomerSchema)}
    accounts = openapi.shape("Customers", accounts=list[CustomerSchema], next_cursor=str | None)
    actions = openapi.shape("OperatorActions", actions=list[OperatorActionSchema], next_cursor=str | None)
    reason = _request("OperatorReason", {}, {"reason": str})
    paging = (openapi.limit(MAX_PAGE, PAGE), openapi.text("cursor", MAX_TEXT))
    return {
        f"GET {root}/accounts": OperationSpec(
            "The accounts of this server",
            {200: openapi.response("Newest first", accounts)},
            (400,),
            parameters=(openapi.text("q", MAX_TEXT), *paging),
        ),
        f"POST {root}/accounts": OperationSpec(
            "Create an account and a link that signs in once",
            {201: openapi.response("The account", InvitedCustomerSchema)},
            (400, 409),
            _request("AccountInvitation", {"email": str}, {"credit_usd": _Amount, "reason": str}),
        ),
        f"GET {account_path}": OperationSpec("An account", changed, (404,)),
        f"PATCH {account_path}": OperationSpec(
            "Set the budgets of an account",
            changed,
            (400, 404),
            _request("CustomerChanges", {}, {"budget_day_usd": _Amount, "budget_month_usd": _Amount}),
        ),
        f"POST {account_path}/credit": OperationSpec(
            "Add credit, or withdraw a negative amount",
            changed,
            (400, 404),
            _request("CreditRequest", {"amount_usd": str | float, "reason": str}, {}),
            (openapi.IDEMPOTENCY,),
        ),
        f"POST {account_path}/suspend": OperationSpec("Suspend an account", changed, (400, 404), reason),
        f"POST {account_path}/resume": OperationSpec(
            "End the suspension of an account", changed, (404,), reason
        ),
        f"GET {root}/actions": OperationSpec(
            "What operators did",
            {200: openapi.response("Newest first", actions)},
            (400,),
            parameters=(openapi.text("target", MAX_TEXT), *paging),
        ),
    }
