-- name: pages_list | Return an account's pages after a slug, filtered and ordered by slug; `COALESCE` forces the slug index.
SELECT p.id, p.slug, p.title, p.type, p.tags, p.collections, p.version, p.created_at, p.updated_at, p.created_by
FROM page p
WHERE p.account_id = :account_id AND COALESCE(p.deleted_at, 0) = 0
  AND p.slug > :after AND p.slug <= :until AND p.slug >= :prefix AND p.slug < :prefix_end
  AND p.updated_at > :updated_after
  AND (:type = '' OR p.type = :type)
  AND (:tag = '' OR EXISTS (SELECT 1 FROM page_tag t
       WHERE t.account_id = p.account_id AND t.tag = :tag AND t.page_id = p.id))
  AND (:collection = '' OR EXISTS (SELECT 1 FROM page_collection c
       WHERE c.account_id = p.account_id AND c.collection = :collection AND c.page_id = p.id))
  AND {in_scope p.id}
ORDER BY p.slug LIMIT :limit;

-- name: link_names | Return for each last slug segment the page with the shortest slug; `OFFSET 0` forces a lookup by name.
SELECT DISTINCT ON (p.name) p.name AS target, p.id, p.slug, 2 AS rank
FROM json_array_elements_text(:names::json) AS requested (name)
CROSS JOIN LATERAL (SELECT * FROM page WHERE account_id = :account_id AND page.name = requested.name OFFSET 0) AS p
WHERE p.deleted_at IS NULL
ORDER BY p.name, LENGTH(p.slug), p.slug;

-- name: links_end | Set the end time of removed links.
UPDATE page_link SET ended_at = :ended_at
WHERE ended_at IS NULL AND maker = :maker
  AND page_id = ANY (ARRAY(SELECT (j.value ->> 'id') FROM json_array_elements(:rows::json) AS j (value)))
  AND (page_id, type, target) IN (
    SELECT (j.value ->> 'id'), (j.value ->> 'type'), (j.value ->> 'target')
    FROM json_array_elements(:rows::json) AS j (value));

-- name: links_context | Update the context lines of current links from page bodies.
UPDATE page_link SET context = (j.value ->> 'context') FROM json_array_elements(:rows::json) AS j (value)
WHERE page_link.page_id = (j.value ->> 'id') AND page_link.type = (j.value ->> 'type')
  AND page_link.target = (j.value ->> 'target') AND page_link.maker = 'body'
  AND page_link.ended_at IS NULL
  AND page_link.page_id = ANY (ARRAY(SELECT (k.value ->> 'id') FROM json_array_elements(:rows::json) AS k (value)));

-- name: links_arrive_by_name | Resolve unresolved links whose target is the last slug segment of a new page.
UPDATE page_link SET by_name = 1, target_id = (
    SELECT (j.value ->> 'id') FROM json_array_elements(:rows::json) AS j (value)
    WHERE (j.value ->> 'name') = page_link.target LIMIT 1)
WHERE account_id = :account_id AND ended_at IS NULL AND (target_id IS NULL OR by_name = 1) AND target_id IS NULL
  AND target = ANY (ARRAY(SELECT (j.value ->> 'name') FROM json_array_elements(:rows::json) AS j (value)));

-- name: links_arrive_within | Resolve unresolved links whose target is a new page's path relative to the nearest shared folder.
UPDATE page_link SET by_name = 1, target_id = w.id
FROM (
    SELECT DISTINCT ON (l.page_id, l.type, l.target, l.maker, l.created_at)
        (j.value ->> 'id') AS id, l.page_id, l.type, l.target, l.maker, l.created_at
    FROM json_array_elements(:rows::json) AS j (value)
    JOIN page_link l ON l.account_id = :account_id AND l.target = (j.value ->> 'path')
    JOIN page p ON p.id = l.page_id
    WHERE l.ended_at IS NULL AND (l.target_id IS NULL OR l.by_name = 1) AND l.target_id IS NULL
      AND l.target = ANY (ARRAY(SELECT (k.value ->> 'path') FROM json_array_elements(:rows::json) AS k (value)))
      AND starts_with(p.slug, j.value ->> 'folder')
    ORDER BY l.page_id, l.type, l.target, l.maker, l.created_at, LENGTH(j.value ->> 'folder')
) AS w
WHERE page_link.page_id = w.page_id AND page_link.type = w.type AND page_link.target = w.target
  AND page_link.maker = w.maker AND page_link.created_at = w.created_at;

-- name: links_out_of | Return the current links of pages with their target pages; `OFFSET 0` forces a lookup by page.
SELECT l.page_id, l.type, l.target, l.maker, l.origin, l.context, l.created_at, t.slug AS to_slug,
       t.collections AS to_collections, (t.id IS NOT NULL AND t.deleted_at IS NULL) AS resolved
FROM json_array_elements_text(:ids::json) AS requested (id)
CROSS JOIN LATERAL (SELECT * FROM page_link WHERE page_link.page_id = requested.id OFFSET 0) AS l
LEFT JOIN page t ON t.id = l.target_id
WHERE l.account_id = :account_id AND l.ended_at IS NULL
  AND l.origin <> 'dismissed'
ORDER BY l.page_id, l.created_at, l.target, l.type;

-- name: edges_out | Return the links of pages with their target pages for graph traversal.
SELECT l.page_id AS from_id, l.target_id AS to_id, l.type, t.slug, t.title, t.collections
FROM json_array_elements_text(:ids::json) AS requested (id)
CROSS JOIN LATERAL (SELECT * FROM page_link WHERE page_link.page_id = requested.id OFFSET 0) AS l
JOIN page t ON t.id = l.target_id
WHERE l.account_id = :account_id AND l.ended_at IS NULL
  AND l.origin <> 'dismissed' AND t.deleted_at IS NULL AND (:type = '' OR l.type = :type)
ORDER BY l.page_id, t.slug, l.type LIMIT :limit;

-- name: edges_in | Return the links to pages with their source pages for graph traversal.
SELECT l.target_id AS from_id, l.page_id AS to_id, l.type, s.slug, s.title, s.collections
FROM json_array_elements_text(:ids::json) AS requested (id)
CROSS JOIN LATERAL (SELECT * FROM page_link WHERE page_link.target_id = requested.id OFFSET 0) AS l
JOIN page s ON s.id = l.page_id
WHERE l.account_id = :account_id AND l.ended_at IS NULL
  AND l.origin <> 'dismissed' AND s.deleted_at IS NULL AND (:type = '' OR l.type = :type)
ORDER BY l.target_id, s.slug, l.type LIMIT :limit;

-- name: pages_titled | Return the slugs, titles and collections of pages by id; `OFFSET 0` forces a lookup by id.
SELECT p.id, p.slug, p.title, p.collections FROM json_array_elements_text(:ids::json) AS requested (id)
CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = requested.id OFFSET 0) AS p
WHERE p.account_id = :account_id AND p.deleted_at IS NULL;

-- name: page_files | Return the files of pages.
SELECT f.page_id, f.file_id, f.media_type FROM json_array_elements_text(:ids::json) AS requested (id)
JOIN page_file f ON f.page_id = requested.id
WHERE f.account_id = :account_id;
