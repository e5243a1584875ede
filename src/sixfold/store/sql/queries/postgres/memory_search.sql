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
