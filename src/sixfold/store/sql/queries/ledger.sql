-- name: ledger_reserve | Move available money to held; nothing when the balance is too low.
UPDATE account SET held = held + :amount
WHERE id = :account_id AND ((can_go_negative = 1 AND kind <> 'customer') OR posted - held >= :amount)
RETURNING id;

-- name: hold_insert | Write the hold that explains a reservation.
INSERT INTO hold (id, account_id, amount, state, created_at, key_id, about)
VALUES (:id, :account_id, :amount, 'pending', :now, :key_id, :about);

-- name: ledger_spend | Take available money; nothing when the balance is too low.
UPDATE account SET posted = posted - :amount
WHERE id = :account_id AND ((can_go_negative = 1 AND kind <> 'customer') OR posted - held >= :amount)
RETURNING id;

-- name: hold_insert_captured | A hold that ends as it is made, among others.
INSERT INTO hold (id, account_id, amount, captured, state, created_at, ended_at, key_id)
VALUES (:id, :account_id, :amount, :captured, 'captured', :now, :now, :key_id);

-- name: account_below_zero | An account that owes money.
SELECT id FROM account WHERE id = :id AND kind = 'customer' AND posted - held < 0;

-- name: account_let_below_zero | A customer from whom more is taken back than there is.
UPDATE account SET can_go_negative = 1 WHERE id = :id AND kind = 'customer' AND posted - held < :amount;

-- name: account_is_above_zero | A customer who owes nothing any more.
UPDATE account SET can_go_negative = 0
WHERE id = :id AND kind = 'customer' AND can_go_negative = 1 AND posted - held >= 0;

-- name: hold_by_id | One hold.
SELECT account_id, amount, key_id, created_at FROM hold WHERE id = :id;

-- name: hold_end | End a pending hold, once: captured (with an amount) or released.
UPDATE hold SET state = :state, captured = :captured, ended_at = :now, about = NULL
WHERE id = :id AND state = 'pending' AND amount >= :captured
RETURNING account_id, amount, key_id, created_at;

-- name: hold_end_each | End a pending hold of this account and amount, among others.
UPDATE hold SET state = :state, captured = :captured, ended_at = :now, about = NULL
WHERE id = :id AND state = 'pending' AND account_id = :account_id AND amount = :amount;

-- name: ledger_settle | Give held money back, less what was captured of it.
UPDATE account SET held = held - :amount, posted = posted - :captured WHERE id = :account_id
RETURNING id;

-- name: ledger_post | Add to (or take from) an account's posted balance.
UPDATE account SET posted = posted + :amount WHERE id = :account_id RETURNING id;

-- name: transfer_insert | One line of the journal.
INSERT INTO transfer (id, debit, credit, amount, hold_id, kind, description, request_id, charge, created_at)
VALUES (:id, :debit, :credit, :amount, :hold_id, :kind, :description, :request_id, :charge, :now);

-- name: transfer_of_each | The line of the journal of a hold that was captured, among others.
INSERT INTO transfer (id, debit, credit, amount, hold_id, kind, description, request_id, charge,
    created_at)
VALUES ('capture:' || :id, :account_id, :credit, :captured, :id, :kind, :description, :request_id, :charge, :now);

-- name: transfer_of_hold | The capture of a hold.
SELECT debit, amount FROM transfer WHERE hold_id = :hold_id;

-- name: transfer_by_id | One line of the journal.
SELECT id FROM transfer WHERE id = :id;

-- name: ledger_page | An account's entries, newest first, from before a position; each side is read from its index.
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

-- name: ledger_sum_posted | Must be 0: money is only moved.
SELECT CAST(COALESCE(SUM(posted), 0) AS BIGINT) AS total FROM account;

-- name: ledger_drift_posted | Accounts whose balance differs from the journal.
WITH journal AS (
    SELECT account_id, SUM(amount) AS total
    FROM (SELECT credit AS account_id, amount FROM transfer
          UNION ALL SELECT debit, -amount FROM transfer) AS sides
    GROUP BY account_id)
SELECT a.id, a.posted, CAST(COALESCE(j.total, 0) AS BIGINT) AS journal
FROM account a LEFT JOIN journal j ON j.account_id = a.id
WHERE a.posted <> COALESCE(j.total, 0);

-- name: ledger_held | The sum of all pending holds.
SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) AS held FROM hold WHERE state = 'pending';

-- name: ledger_drift_held | Accounts whose held money differs from their pending holds.
WITH pending AS (SELECT account_id, SUM(amount) AS total FROM hold WHERE state = 'pending' GROUP BY account_id)
SELECT a.id, a.held, CAST(COALESCE(p.total, 0) AS BIGINT) AS pending
FROM account a LEFT JOIN pending p ON p.account_id = a.id
WHERE a.held <> COALESCE(p.total, 0);

-- name: ledger_overdrawn | Accounts below zero that may not be.
SELECT id, posted, held FROM account WHERE can_go_negative = 0 AND posted - held < 0;

-- name: ledger_holds_without_transfer | Captured holds that no transfer of the same amount explains.
SELECT h.id FROM hold h LEFT JOIN transfer t ON t.hold_id = h.id
WHERE (h.state = 'captured') <> (t.id IS NOT NULL)
   OR (t.id IS NOT NULL AND (t.amount <> h.captured OR t.debit <> h.account_id));

-- name: ledger_predictions_unsettled | Predictions whose state and hold tell different stories.
SELECT p.id, p.state, h.state AS hold_state
FROM prediction p LEFT JOIN hold h ON h.id = p.id LEFT JOIN transfer r ON r.id = 'refund:' || p.id
WHERE (p.price > 0 AND h.id IS NULL AND p.parent_id IS NULL)
   OR (h.id IS NOT NULL AND (p.price = 0 OR p.parent_id IS NOT NULL))
   OR (h.state = 'captured' AND p.state <> 'succeeded' AND r.id IS NULL)
   OR (h.state = 'pending' AND p.state IN ('succeeded', 'failed', 'canceled', 'expired'))
   OR (h.state = 'released' AND p.state NOT IN ('failed', 'canceled', 'expired') AND p.cost > 0);

-- name: ledger_refunds_with_results | Predictions whose money was given back while their result is there.
SELECT p.id FROM transfer r JOIN prediction p ON p.id = substr(r.id, 8)
WHERE r.kind = 'refund'
  AND (p.state = 'succeeded' OR p.output IS NOT NULL OR p.cost > 0
       OR EXISTS (SELECT 1 FROM media m WHERE m.prediction_id = p.id AND m.kind = 'output'
                    AND (m.expires_at IS NULL OR m.expires_at > :now)));

-- name: ledger_children_unpaid | Priced results of children that no parent paid for.
SELECT c.id FROM prediction c JOIN prediction p ON p.id = c.parent_id
WHERE c.parent_id IS NOT NULL AND c.state = 'succeeded' AND c.cost > 0
  AND p.state IN ('failed', 'canceled', 'expired');

-- name: ledger_parts_before_payment | Results that can be read while what they were ordered for is not paid.
SELECT c.id FROM prediction p JOIN prediction c ON c.parent_id = p.id
WHERE p.price > 0 AND p.state <> 'succeeded' AND c.state = 'succeeded'
  AND (c.withheld = 0
       OR EXISTS (SELECT 1 FROM media m WHERE m.prediction_id = c.id
                    AND (m.expires_at IS NULL OR m.expires_at > :now)));
