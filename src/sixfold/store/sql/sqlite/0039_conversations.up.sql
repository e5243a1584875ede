-- Adds conversations, and the accounts that own objects at model servers.
-- Conversations of accounts with their items, and the ids of objects that a model server stores for an account. A
-- conversation is locked while a response to it is made. An id is the server's that made it, so it is one account's only
-- together with that.
CREATE TABLE relay_conversation (
    account_id    TEXT NOT NULL REFERENCES account (id),
    id            TEXT NOT NULL,
    credential_id TEXT NOT NULL,
    metadata      TEXT NOT NULL,
    items         INTEGER NOT NULL,
    size          INTEGER NOT NULL,
    last_place    INTEGER NOT NULL,
    lock_id       TEXT NOT NULL DEFAULT '',
    lock_holder   TEXT NOT NULL DEFAULT '',
    locked_at     INTEGER NOT NULL DEFAULT 0,
    created_at    INTEGER NOT NULL,
    PRIMARY KEY (account_id, id)
) STRICT;

CREATE TABLE relay_conversation_item (
    account_id      TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    place           INTEGER NOT NULL,
    id              TEXT NOT NULL,
    size            INTEGER NOT NULL,
    item            TEXT NOT NULL,
    PRIMARY KEY (account_id, conversation_id, place),
    UNIQUE (account_id, conversation_id, id),
    FOREIGN KEY (account_id, conversation_id) REFERENCES relay_conversation (account_id, id) ON DELETE CASCADE
) STRICT;

CREATE TABLE relay_object (
    account_id    TEXT NOT NULL REFERENCES account (id),
    id            TEXT NOT NULL,
    credential_id TEXT NOT NULL,
    server        TEXT NOT NULL,
    response_id   TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    PRIMARY KEY (account_id, id, credential_id)
) STRICT;
CREATE INDEX relay_object_response ON relay_object (account_id, response_id);
CREATE INDEX relay_object_age ON relay_object (created_at);

-- The conversation of a response, and the place of its last item there.
ALTER TABLE relay_response ADD COLUMN conversation TEXT NOT NULL DEFAULT '';
ALTER TABLE relay_response ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
