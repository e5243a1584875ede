-- Adds stored responses of the Responses API.
-- Responses that accounts keep: what was new in a request, what came of it, and the one that it goes on from. An id
-- is the server's that made it, so it is one account's only together with that. The long columns come last, so that
-- sizes are read without them.
CREATE TABLE relay_response (
    account_id TEXT NOT NULL REFERENCES account (id),
    id         TEXT NOT NULL,
    previous   TEXT,
    server     TEXT NOT NULL,
    size       INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    input      TEXT NOT NULL,
    response   TEXT NOT NULL,
    PRIMARY KEY (account_id, id)
) STRICT;
CREATE INDEX relay_response_id ON relay_response (id);
CREATE INDEX relay_response_age ON relay_response (created_at);
CREATE INDEX relay_response_previous ON relay_response (account_id, previous) WHERE previous IS NOT NULL;
