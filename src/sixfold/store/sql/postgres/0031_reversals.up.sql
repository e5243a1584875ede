-- Adds what is needed to reverse payments, uploads and OAuth grants.
-- What a reversal needs to take back everything that hangs on it: paths that are being written, spent refresh
-- tokens, the grant of each access token, and what a payment processor has taken back of each payment.
CREATE TABLE upload_path (
    path       TEXT COLLATE "C" PRIMARY KEY,
    files      BIGINT NOT NULL DEFAULT 0,
    writer     TEXT COLLATE "C",
    stored     BIGINT NOT NULL DEFAULT 0,
    changed_at BIGINT NOT NULL
);
CREATE INDEX upload_path_writer ON upload_path (writer) WHERE writer IS NOT NULL;
CREATE INDEX upload_path_changed ON upload_path (changed_at);

CREATE TABLE oauth_spent (
    hash     BYTEA PRIMARY KEY,
    grant_id TEXT COLLATE "C" NOT NULL
);
CREATE INDEX oauth_spent_grant ON oauth_spent (grant_id);
ALTER TABLE oauth_grant ADD COLUMN used_at BIGINT;
ALTER TABLE api_key ADD COLUMN grant_id TEXT COLLATE "C";
ALTER TABLE session ADD COLUMN credential TEXT COLLATE "C";

ALTER TABLE graph_outcome ADD COLUMN prediction_id TEXT COLLATE "C";
CREATE INDEX media_prediction ON media (prediction_id) WHERE prediction_id IS NOT NULL;
CREATE INDEX transfer_refund ON transfer (hold_id, id) WHERE kind = 'refund';

-- One row for each payment: what was paid, and what was taken back of it. An event about a payment may come
-- before the one that says that it was paid; then there is no account yet.
CREATE TABLE payment (
    id         TEXT COLLATE "C" PRIMARY KEY,
    account_id TEXT COLLATE "C" REFERENCES account (id),
    paid       BIGINT NOT NULL DEFAULT 0,
    refunded   BIGINT NOT NULL DEFAULT 0,
    taken_back BIGINT NOT NULL DEFAULT 0,
    moves      BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE payment_dispute (
    id         TEXT COLLATE "C" PRIMARY KEY,
    payment_id TEXT COLLATE "C" NOT NULL,
    amount     BIGINT NOT NULL,
    withdrawn  BIGINT NOT NULL DEFAULT 0,
    reinstated BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX payment_dispute_payment ON payment_dispute (payment_id);

CREATE TABLE payment_subscription (
    id         TEXT COLLATE "C" PRIMARY KEY,
    account_id TEXT COLLATE "C" REFERENCES account (id),
    plan       TEXT COLLATE "C",
    state      TEXT COLLATE "C" NOT NULL DEFAULT 'unknown' CHECK (state IN ('unknown', 'live', 'paused', 'over')),
    told_at    BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX payment_subscription_account ON payment_subscription (account_id) WHERE account_id IS NOT NULL;
