-- Adds conversations, and the accounts that own objects at model servers.
-- Conversations of accounts with their items, and the ids of objects that a model server stores for an account. A
-- conversation is locked while a response to it is made. An id is the server's that made it, so it is one account's only
-- together with that.
CREATE TABLE relay_conversation (
    account_id    TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    id            TEXT COLLATE "C" NOT NULL,
    credential_id TEXT COLLATE "C" NOT NULL,
    metadata      TEXT COLLATE "C" NOT NULL,
    items         BIGINT NOT NULL,
    size          BIGINT NOT NULL,
    last_place    BIGINT NOT NULL,
    lock_id       TEXT COLLATE "C" NOT NULL DEFAULT '',
    lock_holder   TEXT COLLATE "C" NOT NULL DEFAULT '',
    locked_at     BIGINT NOT NULL DEFAULT 0,
    created_at    BIGINT NOT NULL,
    PRIMARY KEY (account_id, id)
);

CREATE TABLE relay_conversation_item (
    account_id      TEXT COLLATE "C" NOT NULL,
    conversation_id TEXT COLLATE "C" NOT NULL,
    place           BIGINT NOT NULL,
    id              TEXT COLLATE "C" NOT NULL,
    size            BIGINT NOT NULL,
    item            TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (account_id, conversation_id, place),
    UNIQUE (account_id, conversation_id, id),
    FOREIGN KEY (account_id, conversation_id) REFERENCES relay_conversation (account_id, id) ON DELETE CASCADE
);

CREATE TABLE relay_object (
    account_id    TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    id            TEXT COLLATE "C" NOT NULL,
    credential_id TEXT COLLATE "C" NOT NULL,
    server        TEXT COLLATE "C" NOT NULL,
    response_id   TEXT COLLATE "C" NOT NULL,
    created_at    BIGINT NOT NULL,
    PRIMARY KEY (account_id, id, credential_id)
);
CREATE INDEX relay_object_response ON relay_object (account_id, response_id);
CREATE INDEX relay_object_age ON relay_object (created_at);

-- The conversation of a response, and the place of its last item there.
ALTER TABLE relay_response ADD COLUMN conversation TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE relay_response ADD COLUMN place BIGINT NOT NULL DEFAULT 0;
