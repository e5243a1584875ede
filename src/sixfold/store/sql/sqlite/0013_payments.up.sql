-- Adds events of payment processors and subscriptions.
-- What a payment processor told, each event once, and which subscription pays an account's plan.
CREATE TABLE payment_event (
    id         TEXT PRIMARY KEY,
    kind       TEXT NOT NULL,
    account_id TEXT NOT NULL REFERENCES account (id),
    created_at INTEGER NOT NULL
) STRICT;
ALTER TABLE account ADD COLUMN subscription TEXT;
CREATE INDEX account_subscription ON account (subscription) WHERE subscription IS NOT NULL;
