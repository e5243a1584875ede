-- Adds vector stores.
-- Vector stores of `/v1/vector_stores`: files of an account as chunks of text. `version` changes with the chunks
-- that a search may find, so that an index in memory is known to be current.
CREATE TABLE vector_store (
    id             TEXT COLLATE "C" PRIMARY KEY,
    account_id     TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    credential_id  TEXT COLLATE "C",
    name           TEXT COLLATE "C" NOT NULL,
    description    TEXT COLLATE "C" NOT NULL,
    metadata       TEXT COLLATE "C" NOT NULL,
    expires_days   BIGINT,
    expired        BIGINT NOT NULL DEFAULT 0,
    version        BIGINT NOT NULL DEFAULT 0,
    last_active_at BIGINT NOT NULL,
    created_at     BIGINT NOT NULL
);
CREATE INDEX vector_store_account ON vector_store (account_id, id);
CREATE INDEX vector_store_expiry ON vector_store (last_active_at) WHERE expires_days IS NOT NULL AND expired = 0;
CREATE TABLE vector_store_file (
    store_id   TEXT COLLATE "C" NOT NULL REFERENCES vector_store (id),
    file_id    TEXT COLLATE "C" NOT NULL,
    account_id TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    filename   TEXT COLLATE "C" NOT NULL,
    status     TEXT COLLATE "C" NOT NULL CHECK (status IN ('in_progress', 'completed', 'failed', 'cancelled')),
    error_code TEXT COLLATE "C" NOT NULL DEFAULT '',
    error      TEXT COLLATE "C" NOT NULL DEFAULT '',
    attributes TEXT COLLATE "C" NOT NULL,
    max_tokens BIGINT NOT NULL,
    overlap    BIGINT NOT NULL,
    bytes      BIGINT NOT NULL DEFAULT 0,
    batch_id   TEXT COLLATE "C",
    claimed_at BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (store_id, file_id)
);
CREATE INDEX vector_store_file_waiting ON vector_store_file (created_at) WHERE status = 'in_progress';
CREATE INDEX vector_store_file_account ON vector_store_file (account_id);
CREATE INDEX vector_store_file_file ON vector_store_file (file_id);
CREATE TABLE vector_store_chunk (
    store_id TEXT COLLATE "C" NOT NULL,
    file_id  TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    text     TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (store_id, file_id, position)
);
CREATE TABLE vector_store_batch (
    id         TEXT COLLATE "C" PRIMARY KEY,
    store_id   TEXT COLLATE "C" NOT NULL REFERENCES vector_store (id),
    cancelled  BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL
);
CREATE INDEX vector_store_batch_store ON vector_store_batch (store_id);
