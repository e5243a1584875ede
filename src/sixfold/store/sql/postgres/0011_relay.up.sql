-- Adds calls of the gateway, and spending of keys with a budget.
-- What was asked of model servers, one row for each call; what keys with a budget have spent in a day or a month.
CREATE TABLE relay_call (
    id            TEXT COLLATE "C" PRIMARY KEY,
    account_id    TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    key_id        TEXT COLLATE "C",
    face          TEXT COLLATE "C" NOT NULL,
    model         TEXT COLLATE "C" NOT NULL,
    target        TEXT COLLATE "C" NOT NULL,
    state         TEXT COLLATE "C" NOT NULL CHECK (state IN ('running', 'succeeded', 'left', 'failed')),
    holder        TEXT COLLATE "C" NOT NULL,
    streamed      BIGINT NOT NULL DEFAULT 0,
    attempts      BIGINT NOT NULL DEFAULT 0,
    input_tokens  BIGINT NOT NULL DEFAULT 0,
    cached_tokens BIGINT NOT NULL DEFAULT 0,
    output_tokens BIGINT NOT NULL DEFAULT 0,
    counted_by    TEXT COLLATE "C" NOT NULL DEFAULT '',
    held          BIGINT NOT NULL DEFAULT 0,
    cost          BIGINT NOT NULL DEFAULT 0,
    first_us      BIGINT NOT NULL DEFAULT 0,
    total_us      BIGINT NOT NULL DEFAULT 0,
    error         TEXT COLLATE "C" NOT NULL DEFAULT '',
    request       TEXT COLLATE "C",
    response      TEXT COLLATE "C",
    words         TEXT COLLATE "C" NOT NULL DEFAULT '',
    created_at    BIGINT NOT NULL,
    ended_at      BIGINT
);
CREATE INDEX relay_call_account ON relay_call (account_id, id);
CREATE INDEX relay_call_age ON relay_call (created_at);
CREATE INDEX relay_call_running ON relay_call (created_at) WHERE state = 'running';

CREATE TABLE key_spend (
    key_id TEXT COLLATE "C" NOT NULL,
    period TEXT COLLATE "C" NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (key_id, period)
);

ALTER TABLE hold ADD COLUMN key_id TEXT COLLATE "C";
