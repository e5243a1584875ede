-- Adds the memory: pages, versions, links, tags, collections and timelines.
-- The memory: pages, what they said at any time, their links, tags, collections and timelines.
-- A page's text stands in its versions; `page` is who it is now. Times are epoch µs.

CREATE TABLE memory_usage (
    account_id TEXT PRIMARY KEY REFERENCES account (id),
    used       INTEGER NOT NULL DEFAULT 0 CHECK (used >= 0)
) STRICT;

CREATE TABLE page (
    id          TEXT PRIMARY KEY,
    account_id  TEXT NOT NULL REFERENCES account (id),
    slug        TEXT NOT NULL,
    name        TEXT NOT NULL,
    title       TEXT NOT NULL,
    type        TEXT NOT NULL,
    tags        TEXT NOT NULL,
    collections TEXT NOT NULL,
    version     INTEGER NOT NULL CHECK (version >= 1),
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    created_by  TEXT NOT NULL,
    deleted_at  INTEGER
) STRICT;
CREATE UNIQUE INDEX page_slug ON page (account_id, slug);
CREATE INDEX page_name ON page (account_id, name);
CREATE INDEX page_type ON page (account_id, type) WHERE deleted_at IS NULL;
CREATE INDEX page_updated ON page (account_id, updated_at) WHERE deleted_at IS NULL;

CREATE TABLE page_version (
    page_id     TEXT NOT NULL REFERENCES page (id),
    version     INTEGER NOT NULL,
    account_id  TEXT NOT NULL,
    slug        TEXT NOT NULL,
    title       TEXT NOT NULL,
    type        TEXT NOT NULL,
    tags        TEXT NOT NULL,
    collections TEXT NOT NULL,
    path        TEXT NOT NULL,
    operation   TEXT NOT NULL,
    created_by  TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    chars       INTEGER NOT NULL,
    head        TEXT NOT NULL,
    body        TEXT NOT NULL,
    PRIMARY KEY (page_id, version)
) STRICT;
CREATE INDEX page_version_slug ON page_version (account_id, slug, created_at);

CREATE TABLE page_redirect (
    account_id TEXT NOT NULL,
    slug       TEXT NOT NULL,
    page_id    TEXT NOT NULL REFERENCES page (id),
    created_at INTEGER NOT NULL,
    PRIMARY KEY (account_id, slug)
) STRICT, WITHOUT ROWID;
CREATE INDEX page_redirect_page ON page_redirect (page_id);

CREATE TABLE page_tag (
    account_id TEXT NOT NULL,
    tag        TEXT NOT NULL,
    page_id    TEXT NOT NULL REFERENCES page (id),
    PRIMARY KEY (account_id, tag, page_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX page_tag_page ON page_tag (page_id);

CREATE TABLE page_collection (
    account_id TEXT NOT NULL,
    collection TEXT NOT NULL,
    page_id    TEXT NOT NULL REFERENCES page (id),
    PRIMARY KEY (account_id, collection, page_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX page_collection_page ON page_collection (page_id);

-- `maker` says who keeps a link: the page's body, a call (api), or inference; `origin` is what is shown, or
-- `dismissed`. `target` is the slug as it was written, `target_id` the page that it found, `by_name` whether
-- it found it by its last segment alone.
CREATE TABLE page_link (
    page_id    TEXT NOT NULL REFERENCES page (id),
    type       TEXT NOT NULL,
    target     TEXT NOT NULL,
    maker      TEXT NOT NULL CHECK (maker IN ('body', 'api', 'inference')),
    created_at INTEGER NOT NULL,
    account_id TEXT NOT NULL,
    target_id  TEXT,
    by_name    INTEGER NOT NULL DEFAULT 0,
    origin     TEXT NOT NULL CHECK (origin IN ('explicit', 'inferred', 'confirmed', 'dismissed')),
    context    TEXT NOT NULL,
    ended_at   INTEGER,
    PRIMARY KEY (page_id, type, target, maker, created_at)
) STRICT, WITHOUT ROWID;
CREATE INDEX page_link_target ON page_link (target_id) WHERE target_id IS NOT NULL;
CREATE INDEX page_link_waiting ON page_link (account_id, target)
    WHERE ended_at IS NULL AND (target_id IS NULL OR by_name = 1);

CREATE TABLE timeline_entry (
    id         TEXT PRIMARY KEY,
    account_id TEXT NOT NULL,
    page_id    TEXT NOT NULL REFERENCES page (id),
    maker      TEXT NOT NULL CHECK (maker IN ('body', 'api')),
    date       TEXT NOT NULL,
    summary    TEXT NOT NULL,
    detail     TEXT NOT NULL,
    source     TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at   INTEGER
) STRICT;
CREATE INDEX timeline_entry_page ON timeline_entry (page_id, date, id);
