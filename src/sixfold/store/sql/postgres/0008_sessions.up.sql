-- Adds live sessions.
-- Each slice of one is a hold `<session>:<number>`; `slice_amount` is 0 while none is pending.
CREATE TABLE session (
    id           TEXT COLLATE "C" PRIMARY KEY,
    account_id   TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    request_id   TEXT COLLATE "C" NOT NULL,
    model        TEXT COLLATE "C" NOT NULL,
    engine       TEXT COLLATE "C" NOT NULL,
    quality      TEXT COLLATE "C" NOT NULL,
    hardware     TEXT COLLATE "C" NOT NULL,
    inputs       TEXT COLLATE "C" NOT NULL,
    fps          BIGINT NOT NULL,
    rate         BIGINT NOT NULL,
    idle_us      BIGINT NOT NULL,
    token_hash   BYTEA NOT NULL,
    resume_hash  BYTEA NOT NULL,
    state        TEXT COLLATE "C" NOT NULL,
    reason       TEXT COLLATE "C",
    holder       TEXT COLLATE "C" NOT NULL,
    lease_until  BIGINT NOT NULL,
    slice        BIGINT NOT NULL DEFAULT 0,
    slice_amount BIGINT NOT NULL DEFAULT 0,
    slice_at     BIGINT,
    cost         BIGINT NOT NULL DEFAULT 0,
    created_at   BIGINT NOT NULL,
    ready_at     BIGINT,
    closed_at    BIGINT
);
CREATE INDEX session_account ON session (account_id, id);
CREATE INDEX session_open ON session (lease_until) WHERE closed_at IS NULL;
