-- Adds the encrypted log of contents, and cost alerts.
-- For how many days the contents of an account's calls are logged, and these contents, encrypted.
CREATE TABLE content_logging (
    account_id TEXT COLLATE "C" PRIMARY KEY REFERENCES account (id),
    days       BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE content_log (
    account_id TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    id         TEXT COLLATE "C" NOT NULL,
    key_id     TEXT COLLATE "C",
    face       TEXT COLLATE "C" NOT NULL,
    model      TEXT COLLATE "C" NOT NULL,
    request    TEXT COLLATE "C" NOT NULL,
    response   TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (account_id, id)
);
CREATE INDEX content_log_expiry ON content_log (expires_at);

-- Webhooks that are sent once for each day or month in which spending reaches a threshold (micro-dollars). `amount`
-- has what was counted for the period `counted_for` up to `counted_until`, and `due_at` when to send the message.
CREATE TABLE cost_alert (
    id            TEXT COLLATE "C" PRIMARY KEY,
    account_id    TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    key_id        TEXT COLLATE "C" NOT NULL,
    period        TEXT COLLATE "C" NOT NULL CHECK (period IN ('day', 'month')),
    threshold     BIGINT NOT NULL CHECK (threshold > 0),
    url           TEXT COLLATE "C" NOT NULL,
    counted_for   TEXT COLLATE "C" NOT NULL DEFAULT '',
    counted_until BIGINT NOT NULL DEFAULT 0,
    amount        BIGINT NOT NULL DEFAULT 0,
    sent_for      TEXT COLLATE "C" NOT NULL DEFAULT '',
    sent_amount   BIGINT NOT NULL DEFAULT 0,
    message_id    TEXT COLLATE "C",
    attempts      BIGINT NOT NULL DEFAULT 0,
    reached_at    BIGINT,
    due_at        BIGINT,
    error         TEXT COLLATE "C",
    created_at    BIGINT NOT NULL
);
CREATE INDEX cost_alert_account ON cost_alert (account_id, id);
CREATE INDEX cost_alert_due ON cost_alert (due_at) WHERE due_at IS NOT NULL;

-- What a call was for, by its caller.
ALTER TABLE relay_call ADD COLUMN tag TEXT COLLATE "C" NOT NULL DEFAULT '';
