-- Creates accounts, the ledger, API keys, predictions and media files.
-- Times are epoch µs, money is micro-dollars. The same tables and columns as SQLite's; texts are compared by code
-- point there and so here.

CREATE TABLE account (
    id              TEXT COLLATE "C" PRIMARY KEY,
    kind            TEXT COLLATE "C" NOT NULL CHECK (kind IN ('customer', 'operator', 'system')),
    email           TEXT COLLATE "C" UNIQUE,
    can_go_negative BIGINT NOT NULL DEFAULT 0,
    posted          BIGINT NOT NULL DEFAULT 0,
    held            BIGINT NOT NULL DEFAULT 0 CHECK (held >= 0),
    plan            TEXT COLLATE "C" NOT NULL DEFAULT 'free',
    password_hash   TEXT COLLATE "C",
    webhook_secret  TEXT COLLATE "C",
    created_at      BIGINT NOT NULL,
    CONSTRAINT funds CHECK (can_go_negative = 1 OR posted - held >= 0)
);

CREATE TABLE hold (
    id         TEXT COLLATE "C" PRIMARY KEY,
    account_id TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    amount     BIGINT NOT NULL CHECK (amount > 0),
    captured   BIGINT NOT NULL DEFAULT 0 CHECK (captured >= 0 AND captured <= amount),
    state      TEXT COLLATE "C" NOT NULL CHECK (state IN ('pending', 'captured', 'released')),
    created_at BIGINT NOT NULL,
    ended_at   BIGINT
);
CREATE INDEX hold_pending ON hold (account_id) WHERE state = 'pending';

CREATE TABLE transfer (
    id          TEXT COLLATE "C" PRIMARY KEY,
    debit       TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    credit      TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    amount      BIGINT NOT NULL CHECK (amount > 0),
    hold_id     TEXT COLLATE "C" UNIQUE REFERENCES hold (id),
    kind        TEXT COLLATE "C" NOT NULL,
    description TEXT COLLATE "C" NOT NULL,
    request_id  TEXT COLLATE "C",
    created_at  BIGINT NOT NULL,
    CHECK (debit <> credit)
);
CREATE INDEX transfer_debit ON transfer (debit, created_at, id);
CREATE INDEX transfer_credit ON transfer (credit, created_at, id);

CREATE FUNCTION transfer_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation'; END $$;
CREATE TRIGGER transfer_is_immutable BEFORE UPDATE OF debit, credit, amount, hold_id, created_at ON transfer
FOR EACH ROW EXECUTE FUNCTION transfer_refuse('a transfer is immutable');
CREATE TRIGGER transfer_stays BEFORE DELETE ON transfer
FOR EACH ROW EXECUTE FUNCTION transfer_refuse('a transfer is never deleted');

CREATE TABLE api_key (
    id         TEXT COLLATE "C" PRIMARY KEY,
    account_id TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    hash       BYTEA NOT NULL UNIQUE,
    hint       TEXT COLLATE "C" NOT NULL,
    scope      TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);
CREATE INDEX api_key_account ON api_key (account_id);

CREATE TABLE signin (
    token_hash BYTEA PRIMARY KEY,
    account_id TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    kind       TEXT COLLATE "C" NOT NULL CHECK (kind IN ('link', 'session')),
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

CREATE TABLE idempotency (
    id         TEXT COLLATE "C" PRIMARY KEY,
    body_hash  BYTEA NOT NULL,
    boot       TEXT COLLATE "C" NOT NULL,
    status     BIGINT,
    headers    TEXT COLLATE "C",
    body       BYTEA,
    created_at BIGINT NOT NULL
);
CREATE INDEX idempotency_age ON idempotency (created_at);

CREATE TABLE prediction (
    id             TEXT COLLATE "C" PRIMARY KEY,
    account_id     TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    job_id         TEXT COLLATE "C" UNIQUE,
    request_id     TEXT COLLATE "C" NOT NULL,
    idempotency_id TEXT COLLATE "C" UNIQUE,
    parent_id      TEXT COLLATE "C",
    face           TEXT COLLATE "C" NOT NULL,
    model          TEXT COLLATE "C" NOT NULL,
    engine         TEXT COLLATE "C" NOT NULL,
    engine_version TEXT COLLATE "C",
    quality        TEXT COLLATE "C" NOT NULL,
    output_kind    TEXT COLLATE "C" NOT NULL,
    inputs         TEXT COLLATE "C" NOT NULL,
    task           TEXT COLLATE "C" NOT NULL,
    fingerprint    BYTEA NOT NULL,
    origin_id      TEXT COLLATE "C" NOT NULL,
    state          TEXT COLLATE "C" NOT NULL,
    attempt        BIGINT NOT NULL DEFAULT 0,
    holder         TEXT COLLATE "C",
    lease_until    BIGINT,
    price          BIGINT NOT NULL,
    credits        BIGINT NOT NULL,
    cost           BIGINT NOT NULL DEFAULT 0,
    output         TEXT COLLATE "C",
    error          TEXT COLLATE "C",
    error_kind     TEXT COLLATE "C",
    logs           TEXT COLLATE "C" NOT NULL DEFAULT '',
    priced_us      BIGINT NOT NULL DEFAULT 0,
    cold_start_us  BIGINT NOT NULL DEFAULT 0,
    run_us         BIGINT NOT NULL DEFAULT 0,
    stored_us      BIGINT NOT NULL DEFAULT 0,
    stored_bytes   BIGINT NOT NULL DEFAULT 0,
    created_at     BIGINT NOT NULL,
    started_at     BIGINT,
    completed_at   BIGINT
);
CREATE INDEX prediction_queue ON prediction (engine, created_at, id) WHERE state = 'queued';
CREATE INDEX prediction_waiting ON prediction (model) WHERE state = 'queued';
CREATE INDEX prediction_leased ON prediction (lease_until)
    WHERE state IN ('starting', 'running', 'canceling');
CREATE INDEX prediction_account ON prediction (account_id, id);
CREATE INDEX prediction_fingerprint ON prediction (account_id, fingerprint, id);

-- Every step of a prediction is told to all servers of this database, in the transaction that takes it.
CREATE FUNCTION prediction_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_notify('sixfold', NEW.state || ' ' || NEW.id || ' ' || NEW.engine); RETURN NULL; END $$;
CREATE TRIGGER prediction_queued AFTER INSERT ON prediction
FOR EACH ROW WHEN (NEW.state = 'queued') EXECUTE FUNCTION prediction_tell();
CREATE TRIGGER prediction_moved AFTER UPDATE OF state ON prediction
FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION prediction_tell();

CREATE TABLE media (
    name          TEXT COLLATE "C" PRIMARY KEY,
    account_id    TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    blob          TEXT COLLATE "C" NOT NULL,
    kind          TEXT COLLATE "C" NOT NULL CHECK (kind IN ('output', 'upload', 'input')),
    content_type  TEXT COLLATE "C" NOT NULL,
    size          BIGINT NOT NULL,
    sha256        TEXT COLLATE "C",
    prediction_id TEXT COLLATE "C",
    upload_id     TEXT COLLATE "C" UNIQUE,
    created_at    BIGINT NOT NULL,
    expires_at    BIGINT
);
CREATE INDEX media_account ON media (account_id, kind);
CREATE INDEX media_blob ON media (blob);

CREATE TABLE audit (
    id         TEXT COLLATE "C" PRIMARY KEY,
    account_id TEXT COLLATE "C",
    action     TEXT COLLATE "C" NOT NULL,
    detail     TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL
);

-- A server keeps a lock on its name for as long as its session lives, so that others see whether it does.
CREATE FUNCTION server_arrives(boot TEXT) RETURNS VOID LANGUAGE sql AS $$
    SELECT pg_advisory_lock_shared(6, hashtext(boot)) $$;
CREATE FUNCTION server_lives(boot TEXT) RETURNS BOOLEAN LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM pg_locks
                   WHERE locktype = 'advisory' AND classid = 6 AND objsubid = 2 AND granted
                     AND objid = (hashtext(boot)::bigint & 4294967295)::oid
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) $$;

INSERT INTO account (id, kind, can_go_negative, created_at) VALUES
    ('world', 'system', 1, 0),
    ('revenue', 'system', 1, 0);
