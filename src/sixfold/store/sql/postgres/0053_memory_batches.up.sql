-- Adds batches of facts in the memory, and the agent or person for which a version of a page was written.
-- Requests of `remember` and `answer`, which call a chat model: `reserved` counts against the limit of the day while
-- one runs, `cost` afterwards, in micro-dollars. A batch of `remember` has the versions of the pages that it wrote, by
-- which it is undone; `version_before` is 0 for a new page.
CREATE TABLE memory_batch (
    id         TEXT COLLATE "C" PRIMARY KEY,
    account_id TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    kind       TEXT COLLATE "C" NOT NULL CHECK (kind IN ('remember', 'answer')),
    state      TEXT COLLATE "C" NOT NULL CHECK (state IN ('running', 'done', 'undone')),
    folder     TEXT COLLATE "C" NOT NULL,
    source     TEXT COLLATE "C" NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    reserved   BIGINT NOT NULL,
    cost       BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL
);
CREATE INDEX memory_batch_account ON memory_batch (account_id, created_at);
CREATE TABLE memory_batch_page (
    batch_id       TEXT COLLATE "C" NOT NULL REFERENCES memory_batch (id),
    page_id        TEXT COLLATE "C" NOT NULL,
    version_before BIGINT NOT NULL,
    version_after  BIGINT NOT NULL,
    PRIMARY KEY (batch_id, page_id)
);
-- The member or team for which a key or a browser has written a version; empty for the account itself.
ALTER TABLE page_version ADD COLUMN on_behalf_of TEXT COLLATE "C" NOT NULL DEFAULT '';
