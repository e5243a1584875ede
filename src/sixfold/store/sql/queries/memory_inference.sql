-- name: names_of | Return the names by which pages are recognized.
SELECT page_id, name, rank FROM memory_name
WHERE page_id {in :ids};

-- name: names_clear | Delete the names of pages.
DELETE FROM memory_name WHERE page_id {in :ids};

-- name: names_put | Insert names of pages.
INSERT INTO memory_name (account_id, name, page_id, rank)
SELECT :account_id, value ->> 0, value ->> 1, CAST(value ->> 2 AS BIGINT) FROM {items :rows};

-- name: names_find | Return the pages that may be meant by names, ordered by rank within each name.
SELECT n.name, n.rank, p.id, p.slug, p.type, p.collections FROM memory_name n JOIN page p ON p.id = n.page_id
WHERE n.account_id = :account_id AND n.name {in :names} AND p.deleted_at IS NULL
ORDER BY n.name, n.rank, p.slug LIMIT :limit;

-- name: statements_clear | Delete the statements of pages; return the links inferred from them.
DELETE FROM memory_statement WHERE page_id {in :ids}
RETURNING subject_id, relation, object_id;

-- name: statements_put | Insert statements extracted from pages.
INSERT INTO memory_statement (page_id, number, account_id, relation, pattern, subject, subject_id, object,
                              object_id, said, sentence, start, moment)
SELECT value ->> 0, CAST(value ->> 1 AS BIGINT), :account_id, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
       value ->> 7, value ->> 8, value ->> 9, CAST(value ->> 10 AS BIGINT), value ->> 11 FROM {items :rows};

-- name: statements_naming | Return statements with a subject or object name in a list, with their source pages.
SELECT s.*, p.slug, p.collections FROM memory_statement s {page_of s}
WHERE s.account_id = :account_id AND s.subject {in :names} AND p.deleted_at IS NULL
UNION
SELECT s.*, p.slug, p.collections FROM memory_statement s {page_of s}
WHERE s.account_id = :account_id AND s.object {in :names} AND p.deleted_at IS NULL
LIMIT :limit;

-- name: statements_meaning | Return statements with a subject or object page in a list, with their source pages.
SELECT s.*, p.slug, p.collections FROM memory_statement s {page_of s}
WHERE s.subject_id {in :ids} AND p.deleted_at IS NULL
UNION
SELECT s.*, p.slug, p.collections FROM memory_statement s {page_of s}
WHERE s.object_id {in :ids} AND p.deleted_at IS NULL
LIMIT :limit;

-- name: statements_settle | Update the subject page, object page and relation of statements after pages have changed.
UPDATE memory_statement SET
    subject_id = (SELECT j.value ->> 2 FROM {items :rows} AS j
        WHERE j.value ->> 0 = memory_statement.page_id AND CAST(j.value ->> 1 AS BIGINT) = memory_statement.number),
    object_id = (SELECT j.value ->> 3 FROM {items :rows} AS j
        WHERE j.value ->> 0 = memory_statement.page_id AND CAST(j.value ->> 1 AS BIGINT) = memory_statement.number),
    relation = (SELECT j.value ->> 4 FROM {items :rows} AS j
        WHERE j.value ->> 0 = memory_statement.page_id AND CAST(j.value ->> 1 AS BIGINT) = memory_statement.number)
WHERE page_id IN (SELECT value ->> 0 FROM {items :rows})
  AND EXISTS (SELECT 1 FROM {items :rows} AS j
        WHERE j.value ->> 0 = memory_statement.page_id AND CAST(j.value ->> 1 AS BIGINT) = memory_statement.number);

-- name: statements_between | Return statements between subject and object pages, with the pages' collections.
SELECT s.page_id, s.subject_id, s.relation, s.object_id, s.sentence, o.slug AS object_slug,
       a.collections AS subject_collections, p.collections AS collections
FROM memory_statement s
JOIN page a ON a.id = s.subject_id
JOIN page o ON o.id = s.object_id
JOIN page p ON p.id = s.page_id
WHERE s.subject_id {in :subjects} AND +s.object_id {in :objects}
  AND a.deleted_at IS NULL AND o.deleted_at IS NULL AND p.deleted_at IS NULL
ORDER BY s.subject_id, s.relation, s.object_id, s.page_id, s.number LIMIT :limit;

-- name: statements_kept | Return the current inferred links of pages.
SELECT page_id, type, target, target_id, origin, context FROM page_link
WHERE page_id {in :ids} AND maker = 'inference' AND ended_at IS NULL;

-- name: statements_of_page | Return the statements of a page in text order, with their subject and object pages.
SELECT s.relation, s.pattern, s.subject, s.object, s.said, s.sentence, s.start, s.moment,
       a.slug AS subject_slug, a.collections AS subject_collections,
       o.slug AS object_slug, o.collections AS object_collections, l.origin
FROM memory_statement s
LEFT JOIN page a ON a.id = s.subject_id AND a.deleted_at IS NULL
LEFT JOIN page o ON o.id = s.object_id AND o.deleted_at IS NULL
LEFT JOIN page_link l ON l.page_id = s.subject_id AND l.type = s.relation AND l.target_id = s.object_id
    AND l.maker = 'inference' AND l.ended_at IS NULL
WHERE s.page_id = :page_id AND s.account_id = :account_id ORDER BY s.number LIMIT :limit;

-- name: statements_of_subject | Return statements with a page as subject of given relations, except dismissed ones.
SELECT s.page_id, s.subject_id, s.object_id, s.relation, s.sentence, s.moment, p.slug
FROM memory_statement s {page_of s}
WHERE s.subject_id = :id AND p.account_id = :account_id AND p.deleted_at IS NULL
  AND s.relation {in :relations}
  AND {in_scope p.id}
  AND NOT EXISTS (SELECT 1 FROM page_link l WHERE l.page_id = s.subject_id AND l.type = s.relation
       AND l.target_id = s.object_id AND l.maker = 'inference' AND l.ended_at IS NULL AND l.origin = 'dismissed')
ORDER BY s.page_id DESC LIMIT :limit;

-- name: statements_of_object | Return statements with a page as object of given relations, except dismissed ones.
SELECT s.page_id, s.subject_id, s.object_id, s.relation, s.sentence, s.moment, p.slug
FROM memory_statement s {page_of s}
WHERE s.object_id = :id AND p.account_id = :account_id AND p.deleted_at IS NULL
  AND s.relation {in :relations}
  AND {in_scope p.id}
  AND NOT EXISTS (SELECT 1 FROM page_link l WHERE l.page_id = s.subject_id AND l.type = s.relation
       AND l.target_id = s.object_id AND l.maker = 'inference' AND l.ended_at IS NULL AND l.origin = 'dismissed')
ORDER BY s.page_id DESC LIMIT :limit;

-- name: links_of_subject | Return explicit and confirmed links with a page as subject of given relations.
SELECT l.page_id AS subject_id, l.target_id AS object_id, l.type AS relation, l.context AS sentence
FROM page_link l {page_of l}
WHERE l.page_id = :id AND l.account_id = :account_id AND l.target_id IS NOT NULL AND l.ended_at IS NULL
  AND l.origin IN ('explicit', 'confirmed') AND p.deleted_at IS NULL
  AND l.type {in :relations}
  AND {in_scope p.id}
ORDER BY l.page_id, l.type LIMIT :limit;

-- name: links_of_object | Return explicit and confirmed links with a page as object of given relations.
SELECT l.page_id AS subject_id, l.target_id AS object_id, l.type AS relation, l.context AS sentence
FROM page_link l {page_of l}
WHERE l.target_id = :id AND l.account_id = :account_id AND l.target_id IS NOT NULL AND l.ended_at IS NULL
  AND l.origin IN ('explicit', 'confirmed') AND p.deleted_at IS NULL
  AND l.type {in :relations}
  AND {in_scope p.id}
ORDER BY l.page_id, l.type LIMIT :limit;

-- name: pages_within | Return the pages of a list of ids within the allowed collections.
SELECT p.id, p.slug, p.title FROM page p
WHERE p.account_id || '' = :account_id AND p.deleted_at IS NULL AND p.id {in :ids}
  AND {in_scope p.id};

-- name: statements_touch | Set the change number of index entries so that search reloads pages whose links have changed.
UPDATE memory_index SET change = :change WHERE page_id {in :ids} AND entry <> '';
