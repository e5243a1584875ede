-- Adds the number of pages in each folder of the memory.
-- How many pages stand below each folder, so that a tree of any size is opened by its own rows alone.
-- `parent` ends with "/", and is "" at the top; a page counts for every folder that it lies in.
CREATE TABLE memory_folder (
    account_id TEXT NOT NULL REFERENCES account (id),
    parent     TEXT COLLATE "C" NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    pages      BIGINT NOT NULL,
    PRIMARY KEY (account_id, parent, name)
);

INSERT INTO memory_folder (account_id, parent, name, pages)
WITH RECURSIVE step (account_id, parent, rest) AS (
    SELECT account_id, '' COLLATE "C", slug FROM page WHERE deleted_at IS NULL
    UNION ALL
    SELECT account_id, parent || SUBSTR(rest, 1, STRPOS(rest, '/')), SUBSTR(rest, STRPOS(rest, '/') + 1)
    FROM step WHERE STRPOS(rest, '/') > 0
)
SELECT account_id, parent, SUBSTR(rest, 1, STRPOS(rest, '/') - 1), COUNT(*) FROM step
WHERE STRPOS(rest, '/') > 0 GROUP BY 1, 2, 3;

-- The pages of one folder: what stands before the last segment.
CREATE INDEX page_folder ON page (account_id, SUBSTR(slug, 1, LENGTH(slug) - LENGTH(name)), slug)
    WHERE deleted_at IS NULL;
