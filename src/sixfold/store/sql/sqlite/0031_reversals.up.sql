-- Adds what is needed to reverse payments, uploads and OAuth grants.
-- What a reversal needs to take back everything that hangs on it: paths that are being written, spent refresh
-- tokens, the grant of each access token, and what a payment processor has taken back of each payment.
CREATE TABLE upload_path (
    path       TEXT PRIMARY KEY,
    files      INTEGER NOT NULL DEFAULT 0,
    writer     TEXT,
    stored     INTEGER NOT NULL DEFAULT 0,
    changed_at INTEGER NOT NULL
) STRICT;
CREATE INDEX upload_path_writer ON upload_path (writer) WHERE writer IS NOT NULL;
CREATE INDEX upload_path_changed ON upload_path (changed_at);

CREATE TABLE oauth_spent (
    hash     BLOB PRIMARY KEY,
    grant_id TEXT NOT NULL
) STRICT;
CREATE INDEX oauth_spent_grant ON oauth_spent (grant_id);
ALTER TABLE oauth_grant ADD COLUMN used_at INTEGER;
ALTER TABLE api_key ADD COLUMN grant_id TEXT;
ALTER TABLE session ADD COLUMN credential TEXT;
CREATE INDEX signin_hash ON signin (lower(hex(token_hash)));

ALTER TABLE graph_outcome ADD COLUMN prediction_id TEXT;
CREATE INDEX media_prediction ON media (prediction_id) WHERE prediction_id IS NOT NULL;
CREATE INDEX transfer_refund ON transfer (hold_id, id) WHERE kind = 'refund';

-- One row for each payment: what was paid, and what was taken back of it. An event about a payment may come
-- before the one that says that it was paid; then there is no account yet.
CREATE TABLE payment (
    id         TEXT PRIMARY KEY,
    account_id TEXT REFERENCES account (id),
    paid       INTEGER NOT NULL DEFAULT 0,
    refunded   INTEGER NOT NULL DEFAULT 0,
    taken_back INTEGER NOT NULL DEFAULT 0,
    moves      INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE payment_dispute (
    id         TEXT PRIMARY KEY,
    payment_id TEXT NOT NULL,
    amount     INTEGER NOT NULL,
    withdrawn  INTEGER NOT NULL DEFAULT 0,
    reinstated INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX payment_dispute_payment ON payment_dispute (payment_id);

CREATE TABLE payment_subscription (
    id         TEXT PRIMARY KEY,
    account_id TEXT REFERENCES account (id),
    plan       TEXT,
    state      TEXT NOT NULL DEFAULT 'unknown' CHECK (state IN ('unknown', 'live', 'paused', 'over')),
    told_at    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX payment_subscription_account ON payment_subscription (account_id) WHERE account_id IS NOT NULL;
