-- Adds batches of facts in the memory, and the agent or person for which a version of a page was written.
-- Requests of `remember` and `answer`, which call a chat model: `reserved` counts against the limit of the day while
-- one runs, `cost` afterwards, in micro-dollars. A batch of `remember` has the versions of the pages that it wrote, by
-- which it is undone; `version_before` is 0 for a new page.
CREATE TABLE memory_batch (
    id         TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES account (id),
    kind       TEXT NOT NULL CHECK (kind IN ('remember', 'answer')),
    state      TEXT NOT NULL CHECK (state IN ('running', 'done', 'undone')),
    folder     TEXT NOT NULL,
    source     TEXT NOT NULL,
    created_by TEXT NOT NULL,
    reserved   INTEGER NOT NULL,
    cost       INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX memory_batch_account ON memory_batch (account_id, created_at);
CREATE TABLE memory_batch_page (
    batch_id       TEXT NOT NULL REFERENCES memory_batch (id),
    page_id        TEXT NOT NULL,
    version_before INTEGER NOT NULL,
    version_after  INTEGER NOT NULL,
    PRIMARY KEY (batch_id, page_id)
) STRICT;
-- The member or team for which a key or a browser has written a version; empty for the account itself.
ALTER TABLE page_version ADD COLUMN on_behalf_of TEXT NOT NULL DEFAULT '';
