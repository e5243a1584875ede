-- name: ledger_reserve | Move an available amount to held; return no row if the balance is too low.
UPDATE account SET held = held + :amount
WHERE id = :account_id AND {available account} >= :amount
RETURNING id;

-- name: hold_insert | Insert the hold that records a reservation.
INSERT INTO hold (id, account_id, amount, state, created_at, key_id, about)
VALUES (:id, :account_id, :amount, 'pending', :now, :key_id, :about);

-- name: hold_insert_captured | Insert a hold that is already captured; used in batches.
INSERT INTO hold (id, account_id, amount, captured, state, created_at, ended_at, key_id)
VALUES (:id, :account_id, :amount, :captured, 'captured', :now, :now, :key_id);

-- name: ledger_change | Add to held amounts and balances; changes no row whose available balance is less than needed.
UPDATE account SET held = held + :held, posted = posted + :posted
WHERE id = :account_id AND (:needed = 0 OR {available account} >= :needed);

-- name: account_below_zero | Return a customer's account if its available balance is negative.
SELECT id FROM account WHERE id = :id AND kind = 'customer' AND posted - held < 0;

-- name: account_let_below_zero | Allow a customer's negative balance if an amount taken back exceeds the available balance.
UPDATE account SET can_go_negative = 1 WHERE id = :id AND kind = 'customer' AND posted - held < :amount;

-- name: account_is_above_zero | Disallow a customer's negative balance again once the available balance is not negative.
UPDATE account SET can_go_negative = 0
WHERE id = :id AND kind = 'customer' AND can_go_negative = 1 AND posted - held >= 0;

-- name: hold_by_id | Return a hold by its id.
SELECT account_id, amount, key_id, created_at FROM hold WHERE id = :id;

-- name: hold_end | Capture or release a pending hold; return no row if it has ended or is too small.
UPDATE hold SET state = :state, captured = :captured, ended_at = :now, about = NULL
-- Without `|| ''`, PostgreSQL may read all pending holds of the account instead of the one with the id.
WHERE id = :id AND state || '' = 'pending' AND amount >= :captured
RETURNING account_id, amount, key_id, created_at;

-- name: hold_end_each | Capture or release a pending hold of an account and amount; used in batches.
UPDATE hold SET state = :state, captured = :captured, ended_at = :now, about = NULL
-- Without `|| ''`, PostgreSQL may read all pending holds of the account instead of the one with the id.
WHERE id = :id AND state || '' = 'pending' AND account_id = :account_id AND amount = :amount;

-- name: ledger_settle | Subtract an ended hold from an account's held amount and its capture from the balance.
UPDATE account SET held = held - :amount, posted = posted - :captured WHERE id = :account_id
RETURNING id;

-- name: ledger_post | Add an amount, possibly negative, to an account's posted balance.
UPDATE account SET posted = posted + :amount WHERE id = :account_id RETURNING id;

-- name: ledger_out_of_range | Return the account of a credit and `world`, the other side of it, if its balance would exceed a limit.
SELECT id FROM account
WHERE (id = :account_id AND posted + :amount NOT BETWEEN -:limit AND :limit)
   OR (id = 'world' AND posted - :amount NOT BETWEEN -:limit AND :limit);

-- name: transfer_insert | Insert a ledger transfer.
INSERT INTO transfer (id, debit, credit, amount, hold_id, kind, description, request_id, charge, created_at)
VALUES (:id, :debit, :credit, :amount, :hold_id, :kind, :description, :request_id, :charge, :now);

-- name: transfer_of_each | Insert the ledger transfer of a captured hold; used in batches.
INSERT INTO transfer (id, debit, credit, amount, hold_id, kind, description, request_id, charge,
    created_at)
VALUES ('capture:' || :id, :account_id, :credit, :captured, :id, :kind, :description, :request_id, :charge, :now);

-- name: transfer_of_hold | Return the ledger transfer that captured a hold.
SELECT debit, amount FROM transfer WHERE hold_id = :hold_id;

-- name: transfer_by_id | Return the id, credited account, amount and time of a ledger transfer, if it exists.
SELECT id, credit, amount, created_at FROM transfer WHERE id = :id;

-- name: ledger_page | Return a page of an account's transfers, newest first; debits and credits use their own indexes.
SELECT id, created_at, kind, description, request_id, hold_id, charge, amount FROM (
    SELECT * FROM (SELECT id, created_at, kind, description, request_id, hold_id, charge, amount
                   FROM transfer
                   WHERE credit = :account_id AND (created_at, id) < (:before_at, :before_id)
                   ORDER BY created_at DESC, id DESC LIMIT :limit) AS credits
    UNION ALL
    SELECT * FROM (SELECT id, created_at, kind, description, request_id, hold_id, charge, -amount
                   FROM transfer
                   WHERE debit = :account_id AND (created_at, id) < (:before_at, :before_id)
                   ORDER BY created_at DESC, id DESC LIMIT :limit) AS debits
) AS entries
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: ledger_sum_posted | Return the sum of all posted balances, which must be 0.
SELECT CAST(COALESCE(SUM(posted), 0) AS BIGINT) AS total FROM account;

-- name: ledger_drift_posted | Return accounts whose posted balance differs from their closing balance and the sum of their transfers.
WITH journal AS (
    SELECT account_id, SUM(amount) AS total
    FROM (SELECT credit AS account_id, amount FROM transfer
          UNION ALL SELECT debit, -amount FROM transfer
          UNION ALL SELECT account_id, balance FROM closing_balance) AS sides
    GROUP BY account_id)
SELECT a.id, a.posted, CAST(COALESCE(j.total, 0) AS BIGINT) AS journal
FROM account a LEFT JOIN journal j ON j.account_id = a.id
WHERE a.posted <> COALESCE(j.total, 0);

-- name: ledger_held | Return the sum of all pending holds.
SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) AS held FROM hold WHERE state = 'pending';

-- name: ledger_drift_held | Return accounts whose held amount differs from the sum of their pending holds.
WITH pending AS (SELECT account_id, SUM(amount) AS total FROM hold WHERE state = 'pending' GROUP BY account_id)
SELECT a.id, a.held, CAST(COALESCE(p.total, 0) AS BIGINT) AS pending
FROM account a LEFT JOIN pending p ON p.account_id = a.id
WHERE a.held <> COALESCE(p.total, 0);

-- name: ledger_overdrawn | Return accounts with a negative available balance that is not allowed.
SELECT id, posted, held FROM account WHERE can_go_negative = 0 AND posted - held < 0;

-- name: ledger_holds_without_transfer | Return holds whose state or amount does not match their transfer.
SELECT h.id FROM hold h LEFT JOIN transfer t ON t.hold_id = h.id
WHERE (h.state = 'captured') <> (t.id IS NOT NULL)
   OR (t.id IS NOT NULL AND (t.amount <> h.captured OR t.debit <> h.account_id));

-- name: ledger_predictions_unsettled | Return predictions whose state does not match the state of their hold.
SELECT p.id, p.state, h.state AS hold_state
FROM prediction p LEFT JOIN hold h ON h.id = p.id LEFT JOIN transfer r ON r.id = 'refund:' || p.id
WHERE (p.price > 0 AND h.id IS NULL AND p.parent_id IS NULL)
   OR (h.id IS NOT NULL AND (p.price = 0 OR p.parent_id IS NOT NULL))
   OR (h.state = 'captured' AND p.state <> 'succeeded' AND r.id IS NULL)
   OR (h.state = 'pending' AND p.state IN ('succeeded', 'failed', 'canceled', 'expired'))
   OR (h.state = 'released' AND p.state NOT IN ('failed', 'canceled', 'expired') AND p.cost > 0);

-- name: ledger_refunds_with_results | Return refunded predictions whose output, cost or files still exist.
SELECT p.id FROM transfer r JOIN prediction p ON p.id = substr(r.id, 8)
WHERE r.kind = 'refund'
  AND (p.state = 'succeeded' OR p.output IS NOT NULL OR p.cost > 0
       OR EXISTS (SELECT 1 FROM media m WHERE m.prediction_id = p.id AND m.kind = 'output'
                    AND (m.expires_at IS NULL OR m.expires_at > :now)));

-- name: ledger_children_unpaid | Return priced, succeeded child predictions whose parent ended without success.
SELECT c.id FROM prediction c JOIN prediction p ON p.id = c.parent_id
WHERE c.parent_id IS NOT NULL AND c.state = 'succeeded' AND c.cost > 0
  AND p.state IN ('failed', 'canceled', 'expired');

-- name: ledger_parts_before_payment | Return child predictions whose results are readable before their priced parent has succeeded.
SELECT c.id FROM prediction p JOIN prediction c ON c.parent_id = p.id
WHERE p.price > 0 AND p.state <> 'succeeded' AND c.state = 'succeeded'
  AND (c.withheld = 0
       OR EXISTS (SELECT 1 FROM media m WHERE m.prediction_id = c.id
                    AND (m.expires_at IS NULL OR m.expires_at > :now)));
