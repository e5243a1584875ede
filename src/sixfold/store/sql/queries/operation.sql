-- name: operator_action_insert | Insert what an operator did.
INSERT INTO operator_action (id, actor_id, actor, action, target, before, after, created_at)
VALUES (:id, :actor_id, :actor, :action, :target, :before, :after, :now);

-- name: operator_actions | Return what operators did, newest first; to one target, or to all that begin with one that ends in . or _.
SELECT id, actor, action, target, before, after, created_at FROM operator_action
WHERE id < :before_id AND (:target = '' OR target = :target
  OR (SUBSTR(:target, LENGTH(:target), 1) IN ('.', '_') AND SUBSTR(target, 1, LENGTH(:target)) = :target)) ORDER BY id DESC LIMIT :limit;

-- name: operator_accounts | Return accounts whose email address matches a pattern, newest first.
SELECT a.id, a.kind, a.email, a.posted, a.held, a.plan, a.operator_day, a.operator_month, a.created_at, a.closing_at, a.suspended_at, a.invitation_credit,
    (SELECT COUNT(*) FROM api_key k WHERE k.account_id = a.id AND k.revoked_at IS NULL AND k.hint <> '') AS keys,
    (SELECT MAX(k.used_at) FROM api_key k WHERE k.account_id = a.id) AS used_at
FROM account a
WHERE a.id < :before_id AND a.kind <> 'system' AND a.email IS NOT NULL AND LOWER(a.email) LIKE :pattern ESCAPE '\'
ORDER BY a.id DESC LIMIT :limit;

-- name: account_limit | Set the budgets of an account that only the operator changes.
UPDATE account SET operator_day = :operator_day, operator_month = :operator_month WHERE id = :id;

-- name: account_suspend | Suspend an account, or end its suspension; return no row if nothing changes.
UPDATE account SET suspended_at = CASE WHEN :suspended = 1 THEN :now END
WHERE id = :id AND (suspended_at IS NULL) = (:suspended = 1) RETURNING id;

-- name: link_request_begin | Record that the user of an email address asks for a sign-in link; return no row without such an account, or after a recent request.
UPDATE account SET link_requested_at = :now
WHERE email = :email AND email LIKE '%@%' AND kind <> 'system' AND COALESCE(link_requested_at, 0) <= :now - :again_us
RETURNING id;

-- name: link_requests | Return the accounts whose users asked for a sign-in link, newest first.
SELECT id, email, link_requested_at FROM account
WHERE link_requested_at > :now - :life_us AND email LIKE '%@%' ORDER BY link_requested_at DESC LIMIT :limit;

-- name: link_request_end | End the request of an account's user for a sign-in link.
UPDATE account SET link_requested_at = NULL WHERE id = :id AND link_requested_at IS NOT NULL;

-- name: credit_request_begin | Record that an account asks for credit; return no row after a recent request.
UPDATE account SET credit_requested_at = :now
WHERE id = :id AND kind <> 'system' AND COALESCE(credit_requested_at, 0) <= :now - :again_us RETURNING id;

-- name: credit_requests | Return the accounts that asked for credit, newest first, with their balances.
SELECT id, email, posted, held, credit_requested_at FROM account
WHERE credit_requested_at > :now - :life_us ORDER BY credit_requested_at DESC LIMIT :limit;

-- name: credit_request | Return the time at which an account asked for credit, unless the request has ended.
SELECT credit_requested_at FROM account WHERE id = :id AND credit_requested_at > :now - :life_us;

-- name: credit_request_end | End an account's request for credit.
UPDATE account SET credit_requested_at = NULL WHERE id = :id AND credit_requested_at IS NOT NULL;

-- name: invitation_credit_set | Set the credit of an invitation, which is booked at the first sign-in, and its reason.
UPDATE account SET invitation_credit = :amount, invitation_reason = :reason WHERE id = :id;

-- name: invitation_credit | Return the credit of an invitation that has not been booked, and its reason.
SELECT email, invitation_credit AS amount, invitation_reason AS reason FROM account
WHERE id = :id AND invitation_credit IS NOT NULL AND email IS NOT NULL;

-- name: invitation_credit_take | Clear the credit of an invitation; return no row if it was booked already.
UPDATE account SET invitation_credit = NULL, invitation_reason = NULL
WHERE id = :id AND invitation_credit IS NOT NULL RETURNING id;
