-- Adds the memory: pages, versions, links, tags, collections and timelines.
-- The memory: pages, what they said at any time, their links, tags, collections and timelines.
-- A page's text stands in its versions; `page` is who it is now. Times are epoch µs.

CREATE TABLE memory_usage (
    account_id TEXT PRIMARY KEY REFERENCES account (id),
    used       BIGINT NOT NULL DEFAULT 0 CHECK (used >= 0)
);

CREATE TABLE page (
    id          TEXT COLLATE "C" PRIMARY KEY,
    account_id  TEXT NOT NULL REFERENCES account (id),
    slug        TEXT COLLATE "C" NOT NULL,
    name        TEXT COLLATE "C" NOT NULL,
    title       TEXT COLLATE "C" NOT NULL,
    type        TEXT COLLATE "C" NOT NULL,
    tags        TEXT COLLATE "C" NOT NULL,
    collections TEXT COLLATE "C" NOT NULL,
    version     BIGINT NOT NULL CHECK (version >= 1),
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    created_by  TEXT COLLATE "C" NOT NULL,
    deleted_at  BIGINT
);
CREATE UNIQUE INDEX page_slug ON page (account_id, slug);
CREATE INDEX page_name ON page (account_id, name);
CREATE INDEX page_type ON page (account_id, type) WHERE deleted_at IS NULL;
CREATE INDEX page_updated ON page (account_id, updated_at) WHERE deleted_at IS NULL;

CREATE TABLE page_version (
    page_id     TEXT COLLATE "C" NOT NULL REFERENCES page (id),
    version     BIGINT NOT NULL,
    account_id  TEXT NOT NULL,
    slug        TEXT COLLATE "C" NOT NULL,
    title       TEXT COLLATE "C" NOT NULL,
    type        TEXT COLLATE "C" NOT NULL,
    tags        TEXT COLLATE "C" NOT NULL,
    collections TEXT COLLATE "C" NOT NULL,
    path        TEXT COLLATE "C" NOT NULL,
    operation   TEXT COLLATE "C" NOT NULL,
    created_by  TEXT COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL,
    ended_at    BIGINT,
    chars       BIGINT NOT NULL,
    head        TEXT COLLATE "C" NOT NULL,
    body        TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (page_id, version)
);
CREATE INDEX page_version_slug ON page_version (account_id, slug, created_at);

CREATE TABLE page_redirect (
    account_id TEXT NOT NULL,
    slug       TEXT COLLATE "C" NOT NULL,
    page_id    TEXT COLLATE "C" NOT NULL REFERENCES page (id),
    created_at BIGINT NOT NULL,
    PRIMARY KEY (account_id, slug)
);
CREATE INDEX page_redirect_page ON page_redirect (page_id);

CREATE TABLE page_tag (
    account_id TEXT NOT NULL,
    tag        TEXT COLLATE "C" NOT NULL,
    page_id    TEXT COLLATE "C" NOT NULL REFERENCES page (id),
    PRIMARY KEY (account_id, tag, page_id)
);
CREATE INDEX page_tag_page ON page_tag (page_id);

CREATE TABLE page_collection (
    account_id TEXT NOT NULL,
    collection TEXT COLLATE "C" NOT NULL,
    page_id    TEXT COLLATE "C" NOT NULL REFERENCES page (id),
    PRIMARY KEY (account_id, collection, page_id)
);
CREATE INDEX page_collection_page ON page_collection (page_id);

-- `maker` says who keeps a link: the page's body, a call (api), or inference; `origin` is what is shown, or
-- `dismissed`. `target` is the slug as it was written, `target_id` the page that it found, `by_name` whether
-- it found it by its last segment alone.
CREATE TABLE page_link (
    page_id    TEXT COLLATE "C" NOT NULL REFERENCES page (id),
    type       TEXT COLLATE "C" NOT NULL,
    target     TEXT COLLATE "C" NOT NULL,
    maker      TEXT COLLATE "C" NOT NULL CHECK (maker IN ('body', 'api', 'inference')),
    created_at BIGINT NOT NULL,
    account_id TEXT NOT NULL,
    target_id  TEXT COLLATE "C",
    by_name    BIGINT NOT NULL DEFAULT 0,
    origin     TEXT COLLATE "C" NOT NULL CHECK (origin IN ('explicit', 'inferred', 'confirmed', 'dismissed')),
    context    TEXT COLLATE "C" NOT NULL,
    ended_at   BIGINT,
    PRIMARY KEY (page_id, type, target, maker, created_at)
);
CREATE INDEX page_link_target ON page_link (target_id) WHERE target_id IS NOT NULL;
CREATE INDEX page_link_waiting ON page_link (account_id, target)
    WHERE ended_at IS NULL AND (target_id IS NULL OR by_name = 1);

CREATE TABLE timeline_entry (
    id         TEXT COLLATE "C" PRIMARY KEY,
    account_id TEXT NOT NULL,
    page_id    TEXT COLLATE "C" NOT NULL REFERENCES page (id),
    maker      TEXT COLLATE "C" NOT NULL CHECK (maker IN ('body', 'api')),
    date       TEXT COLLATE "C" NOT NULL,
    summary    TEXT COLLATE "C" NOT NULL,
    detail     TEXT COLLATE "C" NOT NULL,
    source     TEXT COLLATE "C" NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    ended_at   BIGINT
);
CREATE INDEX timeline_entry_page ON timeline_entry (page_id, date, id);
