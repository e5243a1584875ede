-- Adds the encrypted log of contents, and cost alerts.
-- For how many days the contents of an account's calls are logged, and these contents, encrypted.
CREATE TABLE content_logging (
    account_id TEXT PRIMARY KEY REFERENCES account (id),
    days       INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE content_log (
    account_id TEXT NOT NULL REFERENCES account (id),
    id         TEXT NOT NULL,
    key_id     TEXT,
    face       TEXT NOT NULL,
    model      TEXT NOT NULL,
    request    TEXT NOT NULL,
    response   TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (account_id, id)
) STRICT;
CREATE INDEX content_log_expiry ON content_log (expires_at);

-- Webhooks that are sent once for each day or month in which spending reaches a threshold (micro-dollars). `amount`
-- has what was counted for the period `counted_for` up to `counted_until`, and `due_at` when to send the message.
CREATE TABLE cost_alert (
    id            TEXT PRIMARY KEY,
    account_id    TEXT NOT NULL REFERENCES account (id),
    key_id        TEXT NOT NULL,
    period        TEXT NOT NULL CHECK (period IN ('day', 'month')),
    threshold     INTEGER NOT NULL CHECK (threshold > 0),
    url           TEXT NOT NULL,
    counted_for   TEXT NOT NULL DEFAULT '',
    counted_until INTEGER NOT NULL DEFAULT 0,
    amount        INTEGER NOT NULL DEFAULT 0,
    sent_for      TEXT NOT NULL DEFAULT '',
    sent_amount   INTEGER NOT NULL DEFAULT 0,
    message_id    TEXT,
    attempts      INTEGER NOT NULL DEFAULT 0,
    reached_at    INTEGER,
    due_at        INTEGER,
    error         TEXT,
    created_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX cost_alert_account ON cost_alert (account_id, id);
CREATE INDEX cost_alert_due ON cost_alert (due_at) WHERE due_at IS NOT NULL;

-- What a call was for, by its caller.
ALTER TABLE relay_call ADD COLUMN tag TEXT NOT NULL DEFAULT '';
