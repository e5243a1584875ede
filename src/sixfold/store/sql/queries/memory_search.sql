-- name: memory_change_next | Increment an account's change number; the row lock blocks its other writers until the commit.
INSERT INTO memory_change (account_id, change) VALUES (:account_id, 1)
ON CONFLICT (account_id) DO UPDATE SET change = memory_change.change + 1
RETURNING change;

-- name: memory_change_last | Return an account's last change number; no row before the first change.
SELECT change FROM memory_change WHERE account_id = :account_id;

-- name: memory_snapshots | Return the tokens of an account's index snapshots; no row before the first change.
SELECT snapshots FROM memory_change WHERE account_id = :account_id;

-- name: memory_snapshots_put | Set the tokens of an account's index snapshots, if it has changes.
UPDATE memory_change SET snapshots = :snapshots WHERE account_id = :account_id;

-- name: memory_in_use | Return one row if any account has a search index entry.
SELECT 1 AS found FROM memory_index LIMIT 1;

-- name: memory_index_put | Insert or replace the search index entries of pages.
INSERT INTO memory_index (page_id, account_id, change, entry)
SELECT value ->> 0, :account_id, :change, value ->> 1 FROM {items :rows} WHERE TRUE
ON CONFLICT (page_id) DO UPDATE SET
    change = excluded.change, entry = excluded.entry, embedded = '';

-- name: memory_index_remove | Clear the search index entry of a page and set its change number.
UPDATE memory_index SET change = :change, entry = ''
WHERE account_id = :account_id AND page_id = :page_id;

-- name: memory_vector_remove | Delete the embedding vectors of a page.
DELETE FROM memory_vector WHERE page_id = :page_id;

-- name: memory_index_changed | Return an account's index entries after a change and page id, in that order.
SELECT page_id, change, entry FROM memory_index
WHERE account_id = :account_id AND (change, page_id) > (:change, :page_id)
ORDER BY change, page_id LIMIT :limit;

-- name: memory_index_sizes | Return page ids and body sizes of the rows of `memory_index_changed`.
SELECT i.page_id, i.change, COALESCE(
    (SELECT v.chars FROM page p JOIN page_version v ON v.page_id = p.id AND v.version = p.version
     WHERE p.id = i.page_id), 0) AS chars
FROM memory_index i
WHERE i.account_id = :account_id AND (i.change, i.page_id) > (:change, :page_id)
ORDER BY i.change, i.page_id LIMIT :limit;

-- name: memory_index_batch | Return the last page id of the next batch of pages; NULL after the last page.
SELECT MAX(id) AS last FROM (SELECT id FROM page WHERE id > :after ORDER BY id LIMIT :limit) AS batch;

-- name: memory_index_outdated | Return the first pages of a batch without an index entry or with one of another format version.
SELECT p.*, v.head, v.body, v.path FROM page p
JOIN page_version v ON v.page_id = p.id AND v.version = p.version
LEFT JOIN memory_index i ON i.page_id = p.id
WHERE p.id > :after AND p.id <= :last AND p.deleted_at IS NULL
  AND COALESCE(SUBSTR(i.entry, 1, CAST(:length AS INTEGER)), '') <> :prefix
ORDER BY p.id LIMIT :limit;

-- name: memory_links_changed | Return links from or to pages changed between two positions.
SELECT l.page_id, l.target_id, i.page_id AS changed FROM memory_index i
JOIN page_link l ON l.page_id = i.page_id
WHERE i.account_id = :account_id AND (i.change, i.page_id) > (:change, :page_id)
  AND (i.change, i.page_id) <= (:last_change, :last_page_id)
  AND l.ended_at IS NULL AND l.target_id IS NOT NULL AND l.origin <> 'dismissed'
UNION ALL
SELECT l.page_id, l.target_id, i.page_id AS changed FROM memory_index i
JOIN page_link l ON l.target_id = i.page_id
WHERE i.account_id = :account_id AND (i.change, i.page_id) > (:change, :page_id)
  AND (i.change, i.page_id) <= (:last_change, :last_page_id)
  AND l.ended_at IS NULL AND l.origin <> 'dismissed';

-- name: memory_vectors_sizes | Return the sizes in bytes of the rows of `memory_vectors_changed`.
SELECT LENGTH(v.vectors) AS chars FROM memory_vector v
JOIN memory_index i ON i.page_id = v.page_id AND i.change = v.of_change
WHERE v.account_id = :account_id AND v.model = :model AND (v.change, v.page_id) > (:change, :page_id)
ORDER BY v.change, v.page_id LIMIT :limit;

-- name: memory_vectors_changed | Return vectors of a model added after a change and page id, if they match the page's current text.
SELECT v.page_id, v.change, v.vectors FROM memory_vector v
JOIN memory_index i ON i.page_id = v.page_id AND i.change = v.of_change
WHERE v.account_id = :account_id AND v.model = :model AND (v.change, v.page_id) > (:change, :page_id)
ORDER BY v.change, v.page_id LIMIT :limit;

-- name: memory_results | Return result pages with bodies up to a length; `CROSS JOIN` makes SQLite look up pages by id.
SELECT p.id, p.slug, p.title, p.type, p.tags, p.collections, p.updated_at, v.chars,
       CASE WHEN p.type = 'document' THEN v.head ELSE '' END AS head,
       CASE WHEN v.chars <= :most THEN v.body END AS body
FROM json_each(:ids) AS requested CROSS JOIN page p ON p.id = requested.value
JOIN page_version v ON v.page_id = p.id AND v.version = p.version
WHERE p.account_id = :account_id AND p.deleted_at IS NULL;

-- name: memory_phrase | Return the pages of the 2,000 last changed ones with a phrase in the title, or in a short text without comments; texts of 4,000,000 characters are read.
SELECT p.id, {position LOWER(p.title), :phrase} > 0 AS titled
FROM (SELECT q.id, q.version, q.title,
             SUM(CASE WHEN w.chars <= 16384 THEN w.chars ELSE 0 END) OVER (ORDER BY q.updated_at DESC, q.id) AS upto
      FROM (SELECT id, version, title, updated_at FROM page
            WHERE account_id = :account_id AND deleted_at IS NULL ORDER BY updated_at DESC LIMIT 2000) AS q
      JOIN page_version w ON w.page_id = q.id AND w.version = q.version) AS p
JOIN page_version v ON v.page_id = p.id AND v.version = p.version
WHERE {has_phrase p.title}
   OR (p.upto <= 4000000 AND v.chars <= 16384 AND {position v.body, '%%'} = 0
       AND {has_phrase v.body});

-- name: memory_waiting | Return pages that need vectors, with their text, newest first.
SELECT i.page_id, i.account_id, i.change, p.slug, p.title, v.body FROM memory_index i
JOIN page p ON p.id = i.page_id
JOIN page_version v ON v.page_id = p.id AND v.version = p.version
WHERE i.embedded = '' AND i.entry <> ''
ORDER BY i.page_id DESC LIMIT :limit;

-- name: memory_waiting_count | Count pages that need vectors.
SELECT COUNT(*) AS count FROM memory_index WHERE embedded = '' AND entry <> '';

-- name: memory_embedded | Record the model of a page's vectors, unless the page has changed in the meantime.
UPDATE memory_index SET embedded = :model
WHERE page_id = :page_id AND change = :of_change AND entry <> '' RETURNING page_id;

-- name: memory_vector_put | Insert or replace the vectors of a page's passages.
INSERT INTO memory_vector (page_id, account_id, change, of_change, model, vectors)
VALUES (:page_id, :account_id, :change, :of_change, :model, :vectors)
ON CONFLICT (page_id) DO UPDATE SET
    change = excluded.change, of_change = excluded.of_change, model = excluded.model,
    vectors = excluded.vectors;

-- name: memory_embed_anew | Mark pages embedded by another model as needing vectors, at most a limit.
UPDATE memory_index SET embedded = '' WHERE page_id IN (
    SELECT page_id FROM memory_index WHERE embedded <> '' AND embedded < :model
    UNION ALL
    SELECT page_id FROM memory_index WHERE embedded <> '' AND embedded > :model
    LIMIT :limit)
RETURNING page_id;
