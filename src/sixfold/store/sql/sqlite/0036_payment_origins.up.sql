-- Adds invoices of payments, and times of refunds and disputes.
-- Which invoice a payment paid, so that a reversal ends the plan that it paid for; when refunds and disputes were reported,
-- so that a later report replaces an earlier one; and refunds that failed.
ALTER TABLE payment ADD COLUMN invoice TEXT;
ALTER TABLE payment ADD COLUMN refunded_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX payment_invoice ON payment (invoice) WHERE invoice IS NOT NULL;
ALTER TABLE payment_dispute ADD COLUMN withdrawn_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE payment_dispute ADD COLUMN reinstated_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE payment_subscription ADD COLUMN latest_invoice TEXT;
CREATE INDEX payment_subscription_invoice ON payment_subscription (latest_invoice) WHERE latest_invoice IS NOT NULL;

CREATE TABLE payment_refund_failed (
    id         TEXT PRIMARY KEY,
    payment_id TEXT NOT NULL,
    amount     INTEGER NOT NULL,
    failed_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX payment_refund_failed_payment ON payment_refund_failed (payment_id);

-- The unfinished free predictions of an account, which a limit counts.
CREATE INDEX prediction_free ON prediction (account_id)
WHERE price = 0 AND parent_id IS NULL AND state IN ('queued', 'starting', 'running', 'canceling');
