-- name: memory_index_put | Insert or replace the search index entries of pages.
INSERT INTO memory_index (page_id, account_id, change, entry)
SELECT value ->> 0, :account_id, :change, value ->> 1 FROM json_array_elements(:rows::json)
ON CONFLICT (page_id) DO UPDATE SET
    change = excluded.change, entry = excluded.entry, embedded = '';

-- name: memory_phrase | Return the pages of the 2,000 last changed ones with a phrase in the title, or in a short text without comments; texts of 4,000,000 characters are read.
SELECT p.id, STRPOS(LOWER(p.title), :phrase) > 0 AS titled
FROM (SELECT q.id, q.version, q.title,
             SUM(CASE WHEN w.chars <= 16384 THEN w.chars ELSE 0 END) OVER (ORDER BY q.updated_at DESC, q.id) AS upto
      FROM (SELECT id, version, title, updated_at FROM page
            WHERE account_id = :account_id AND deleted_at IS NULL ORDER BY updated_at DESC LIMIT 2000) AS q
      JOIN page_version w ON w.page_id = q.id AND w.version = q.version) AS p
JOIN page_version v ON v.page_id = p.id AND v.version = p.version
WHERE (STRPOS(' ' || REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(LOWER(p.title), '.', ''), ',', ''), '?', ''), '!', ''), ':', ''), '"', ''), chr(10), ' ') || ' ', ' ' || :phrase || ' ') > 0)
   OR (p.upto <= 4000000 AND v.chars <= 16384 AND STRPOS(v.body, '%%') = 0
       AND STRPOS(' ' || REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(LOWER(v.body), '.', ''), ',', ''), '?', ''), '!', ''), ':', ''), '"', ''), chr(10), ' ') || ' ', ' ' || :phrase || ' ') > 0);

-- name: memory_results | Return result pages with bodies up to a length; `OFFSET 0` makes PostgreSQL look up pages by id.
SELECT p.id, p.slug, p.title, p.type, p.tags, p.collections, p.updated_at, v.chars,
       CASE WHEN p.type = 'document' THEN v.head ELSE '' END AS head, v.body
FROM json_array_elements_text(:ids::json) AS requested (id)
CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = requested.id OFFSET 0) AS p
CROSS JOIN LATERAL (SELECT chars, head, CASE WHEN chars <= :most THEN body END AS body
    FROM page_version v
    WHERE v.page_id = p.id AND v.version = p.version OFFSET 0) AS v
WHERE p.account_id = :account_id AND p.deleted_at IS NULL;

-- name: memory_links_changed | Return links from or to pages changed between two positions; `OFFSET 0` forces a lookup by page.
WITH fresh AS MATERIALIZED (
    SELECT page_id FROM memory_index
    WHERE account_id = :account_id AND (change, page_id) > (:change, :page_id)
      AND (change, page_id) <= (:last_change, :last_page_id))
SELECT l.page_id, l.target_id, fresh.page_id AS changed FROM fresh
CROSS JOIN LATERAL (SELECT * FROM page_link WHERE page_link.page_id = fresh.page_id OFFSET 0) AS l
WHERE l.ended_at IS NULL AND l.target_id IS NOT NULL AND l.origin <> 'dismissed'
UNION ALL
SELECT l.page_id, l.target_id, fresh.page_id AS changed FROM fresh
CROSS JOIN LATERAL (SELECT * FROM page_link WHERE page_link.target_id = fresh.page_id OFFSET 0) AS l
WHERE l.ended_at IS NULL AND l.origin <> 'dismissed';
