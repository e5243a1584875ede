-- `OFFSET 0` makes the planner look up pages by id. Without statistics, such as right after an import, it
-- would scan all pages of the account.

-- name: names_put | Insert names of pages.
INSERT INTO memory_name (account_id, name, page_id, rank)
SELECT :account_id, value ->> 0, value ->> 1, (value ->> 2)::bigint FROM json_array_elements(:rows::json);

-- name: statements_put | Insert statements extracted from pages.
INSERT INTO memory_statement (page_id, number, account_id, relation, pattern, subject, subject_id, object,
                              object_id, said, sentence, start, moment)
SELECT value ->> 0, (value ->> 1)::bigint, :account_id, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
       value ->> 7, value ->> 8, value ->> 9, (value ->> 10)::bigint, value ->> 11 FROM json_array_elements(:rows::json);

-- name: statements_naming | Return statements with a subject or object name in a list, with their source pages.
SELECT s.*, p.slug, p.collections FROM memory_statement s CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = s.page_id OFFSET 0) AS p
WHERE s.account_id = :account_id AND s.subject {in :names} AND p.deleted_at IS NULL
UNION
SELECT s.*, p.slug, p.collections FROM memory_statement s CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = s.page_id OFFSET 0) AS p
WHERE s.account_id = :account_id AND s.object {in :names} AND p.deleted_at IS NULL
LIMIT :limit;

-- name: statements_meaning | Return statements with a subject or object page in a list, with their source pages.
SELECT s.*, p.slug, p.collections FROM memory_statement s CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = s.page_id OFFSET 0) AS p
WHERE s.subject_id {in :ids} AND p.deleted_at IS NULL
UNION
SELECT s.*, p.slug, p.collections FROM memory_statement s CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = s.page_id OFFSET 0) AS p
WHERE s.object_id {in :ids} AND p.deleted_at IS NULL
LIMIT :limit;

-- name: statements_settle | Update the subject page, object page and relation of statements after pages have changed.
UPDATE memory_statement SET
    subject_id = (SELECT j.value ->> 2 FROM json_array_elements(:rows::json) AS j (value)
        WHERE j.value ->> 0 = memory_statement.page_id AND (j.value ->> 1)::bigint = memory_statement.number),
    object_id = (SELECT j.value ->> 3 FROM json_array_elements(:rows::json) AS j (value)
        WHERE j.value ->> 0 = memory_statement.page_id AND (j.value ->> 1)::bigint = memory_statement.number),
    relation = (SELECT j.value ->> 4 FROM json_array_elements(:rows::json) AS j (value)
        WHERE j.value ->> 0 = memory_statement.page_id AND (j.value ->> 1)::bigint = memory_statement.number)
WHERE page_id IN (SELECT value ->> 0 FROM json_array_elements(:rows::json))
  AND EXISTS (SELECT 1 FROM json_array_elements(:rows::json) AS j (value)
        WHERE j.value ->> 0 = memory_statement.page_id AND (j.value ->> 1)::bigint = memory_statement.number);

-- name: statements_between | Return statements between subject and object pages, with the pages' collections.
SELECT s.page_id, s.subject_id, s.relation, s.object_id, s.sentence, o.slug AS object_slug,
       a.collections AS subject_collections, p.collections AS collections
FROM memory_statement s
JOIN page a ON a.id = s.subject_id
JOIN page o ON o.id = s.object_id
JOIN page p ON p.id = s.page_id
WHERE s.subject_id {in :subjects} AND s.object_id IN (SELECT json_array_elements_text(:objects::json))
  AND a.deleted_at IS NULL AND o.deleted_at IS NULL AND p.deleted_at IS NULL
ORDER BY s.subject_id, s.relation, s.object_id, s.page_id, s.number LIMIT :limit;

-- name: statements_of_subject | Return statements with a page as subject of given relations, except dismissed ones.
SELECT s.page_id, s.subject_id, s.object_id, s.relation, s.sentence, s.moment, p.slug
FROM memory_statement s CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = s.page_id OFFSET 0) AS p
WHERE s.subject_id = :id AND p.account_id = :account_id AND p.deleted_at IS NULL
  AND s.relation {in :relations}
  AND (:scope = '' OR EXISTS (SELECT 1 FROM page_collection c WHERE c.page_id = p.id
       AND REPLACE(:scope, :sep || c.collection || :sep, '') <> :scope))
  AND NOT EXISTS (SELECT 1 FROM page_link l WHERE l.page_id = s.subject_id AND l.type = s.relation
       AND l.target_id = s.object_id AND l.maker = 'inference' AND l.ended_at IS NULL AND l.origin = 'dismissed')
ORDER BY s.page_id DESC LIMIT :limit;

-- name: statements_of_object | Return statements with a page as object of given relations, except dismissed ones.
SELECT s.page_id, s.subject_id, s.object_id, s.relation, s.sentence, s.moment, p.slug
FROM memory_statement s CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = s.page_id OFFSET 0) AS p
WHERE s.object_id = :id AND p.account_id = :account_id AND p.deleted_at IS NULL
  AND s.relation {in :relations}
  AND (:scope = '' OR EXISTS (SELECT 1 FROM page_collection c WHERE c.page_id = p.id
       AND REPLACE(:scope, :sep || c.collection || :sep, '') <> :scope))
  AND NOT EXISTS (SELECT 1 FROM page_link l WHERE l.page_id = s.subject_id AND l.type = s.relation
       AND l.target_id = s.object_id AND l.maker = 'inference' AND l.ended_at IS NULL AND l.origin = 'dismissed')
ORDER BY s.page_id DESC LIMIT :limit;

-- name: links_of_subject | Return explicit and confirmed links with a page as subject of given relations.
SELECT l.page_id AS subject_id, l.target_id AS object_id, l.type AS relation, l.context AS sentence
FROM page_link l CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = l.page_id OFFSET 0) AS p
WHERE l.page_id = :id AND l.account_id = :account_id AND l.target_id IS NOT NULL AND l.ended_at IS NULL
  AND l.origin IN ('explicit', 'confirmed') AND p.deleted_at IS NULL
  AND l.type {in :relations}
  AND (:scope = '' OR EXISTS (SELECT 1 FROM page_collection c WHERE c.page_id = p.id
       AND REPLACE(:scope, :sep || c.collection || :sep, '') <> :scope))
ORDER BY l.page_id, l.type LIMIT :limit;

-- name: links_of_object | Return explicit and confirmed links with a page as object of given relations.
SELECT l.page_id AS subject_id, l.target_id AS object_id, l.type AS relation, l.context AS sentence
FROM page_link l CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = l.page_id OFFSET 0) AS p
WHERE l.target_id = :id AND l.account_id = :account_id AND l.target_id IS NOT NULL AND l.ended_at IS NULL
  AND l.origin IN ('explicit', 'confirmed') AND p.deleted_at IS NULL
  AND l.type {in :relations}
  AND (:scope = '' OR EXISTS (SELECT 1 FROM page_collection c WHERE c.page_id = p.id
       AND REPLACE(:scope, :sep || c.collection || :sep, '') <> :scope))
ORDER BY l.page_id, l.type LIMIT :limit;

-- name: pages_within | Return the pages of a list of ids within the allowed collections; `OFFSET 0` forces a lookup by id.
SELECT p.id, p.slug, p.title FROM json_array_elements_text(:ids::json) AS requested (id)
CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = requested.id OFFSET 0) AS p
WHERE p.account_id = :account_id AND p.deleted_at IS NULL
  AND (:scope = '' OR EXISTS (SELECT 1 FROM page_collection c WHERE c.page_id = p.id
       AND REPLACE(:scope, :sep || c.collection || :sep, '') <> :scope));
