-- `OFFSET 0` keeps the planner from walking through an account for the few pages that are asked for by
-- their ids, as it does while it has no statistics, right after an import.

-- name: names_of | The names that some pages answer to.
SELECT page_id, name, rank FROM memory_name
WHERE page_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)));

-- name: names_clear | Some pages answer to no name any more.
DELETE FROM memory_name WHERE page_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)));

-- name: names_put | Names that pages answer to.
INSERT INTO memory_name (account_id, name, page_id, rank)
SELECT :account_id, value ->> 0, value ->> 1, (value ->> 2)::bigint FROM json_array_elements(:rows::json);

-- name: names_find | The pages that some names may mean.
SELECT n.name, n.rank, p.id, p.slug, p.type, p.collections FROM memory_name n JOIN page p ON p.id = n.page_id
WHERE n.account_id = :account_id AND n.name = ANY (ARRAY(SELECT json_array_elements_text(:names::json))) AND p.deleted_at IS NULL
ORDER BY n.name, n.rank, p.slug LIMIT :limit;

-- name: statements_clear | Take back what some pages stated; gives what links rested on it.
DELETE FROM memory_statement WHERE page_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)))
RETURNING subject_id, relation, object_id;

-- name: statements_put | What pages state.
INSERT INTO memory_statement (page_id, number, account_id, relation, pattern, subject, subject_id, object,
                              object_id, said, sentence, start, moment)
SELECT value ->> 0, (value ->> 1)::bigint, :account_id, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
       value ->> 7, value ->> 8, value ->> 9, (value ->> 10)::bigint, value ->> 11 FROM json_array_elements(:rows::json);

-- name: statements_naming | What was stated of some names, by whatever page, with that page.
SELECT s.*, p.slug, p.collections FROM memory_statement s CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = s.page_id OFFSET 0) AS p
WHERE s.account_id = :account_id AND s.subject = ANY (ARRAY(SELECT json_array_elements_text(:names::json))) AND p.deleted_at IS NULL
UNION
SELECT s.*, p.slug, p.collections FROM memory_statement s CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = s.page_id OFFSET 0) AS p
WHERE s.account_id = :account_id AND s.object = ANY (ARRAY(SELECT json_array_elements_text(:names::json))) AND p.deleted_at IS NULL
LIMIT :limit;

-- name: statements_meaning | What was stated of some pages, by whatever page, with that page.
SELECT s.*, p.slug, p.collections FROM memory_statement s CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = s.page_id OFFSET 0) AS p
WHERE s.subject_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) AND p.deleted_at IS NULL
UNION
SELECT s.*, p.slug, p.collections FROM memory_statement s CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = s.page_id OFFSET 0) AS p
WHERE s.object_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) AND p.deleted_at IS NULL
LIMIT :limit;

-- name: statements_settle | Whom statements mean, now that other pages are there.
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

-- name: statements_between | What is stated of some pairs of pages, with the collections of those that it is about.
SELECT s.page_id, s.subject_id, s.relation, s.object_id, s.sentence, o.slug AS object_slug,
       a.collections AS subject_collections, p.collections AS collections
FROM memory_statement s
JOIN page a ON a.id = s.subject_id
JOIN page o ON o.id = s.object_id
JOIN page p ON p.id = s.page_id
WHERE s.subject_id = ANY (ARRAY(SELECT json_array_elements_text(:subjects::json))) AND s.object_id IN (SELECT json_array_elements_text(:objects::json))
  AND a.deleted_at IS NULL AND o.deleted_at IS NULL AND p.deleted_at IS NULL
ORDER BY s.subject_id, s.relation, s.object_id, s.page_id, s.number LIMIT :limit;

-- name: statements_kept | The live links of some pages that inference drew.
SELECT page_id, type, target, target_id, origin, context FROM page_link
WHERE page_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) AND maker = 'inference' AND ended_at IS NULL;

-- name: statements_of_subject | What is stated of a page as the subject of some relations, unless it was dismissed.
SELECT s.page_id, s.subject_id, s.object_id, s.relation, s.sentence, s.moment, p.slug
FROM memory_statement s CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = s.page_id OFFSET 0) AS p
WHERE s.subject_id = :id AND p.account_id = :account_id AND p.deleted_at IS NULL
  AND s.relation = ANY (ARRAY(SELECT json_array_elements_text(:relations::json)))
  AND (:scope = '' OR EXISTS (SELECT 1 FROM page_collection c WHERE c.page_id = p.id
       AND REPLACE(:scope, :sep || c.collection || :sep, '') <> :scope))
  AND NOT EXISTS (SELECT 1 FROM page_link l WHERE l.page_id = s.subject_id AND l.type = s.relation
       AND l.target_id = s.object_id AND l.maker = 'inference' AND l.ended_at IS NULL AND l.origin = 'dismissed')
ORDER BY s.page_id DESC LIMIT :limit;

-- name: statements_of_object | What is stated of a page as the object of some relations, unless it was dismissed.
SELECT s.page_id, s.subject_id, s.object_id, s.relation, s.sentence, s.moment, p.slug
FROM memory_statement s CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = s.page_id OFFSET 0) AS p
WHERE s.object_id = :id AND p.account_id = :account_id AND p.deleted_at IS NULL
  AND s.relation = ANY (ARRAY(SELECT json_array_elements_text(:relations::json)))
  AND (:scope = '' OR EXISTS (SELECT 1 FROM page_collection c WHERE c.page_id = p.id
       AND REPLACE(:scope, :sep || c.collection || :sep, '') <> :scope))
  AND NOT EXISTS (SELECT 1 FROM page_link l WHERE l.page_id = s.subject_id AND l.type = s.relation
       AND l.target_id = s.object_id AND l.maker = 'inference' AND l.ended_at IS NULL AND l.origin = 'dismissed')
ORDER BY s.page_id DESC LIMIT :limit;

-- name: links_of_subject | Links of some relations that were written or confirmed, with a page as their subject.
SELECT l.page_id AS subject_id, l.target_id AS object_id, l.type AS relation, l.context AS sentence
FROM page_link l CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = l.page_id OFFSET 0) AS p
WHERE l.page_id = :id AND l.account_id = :account_id AND l.target_id IS NOT NULL AND l.ended_at IS NULL
  AND l.origin IN ('explicit', 'confirmed') AND p.deleted_at IS NULL
  AND l.type = ANY (ARRAY(SELECT json_array_elements_text(:relations::json)))
  AND (:scope = '' OR EXISTS (SELECT 1 FROM page_collection c WHERE c.page_id = p.id
       AND REPLACE(:scope, :sep || c.collection || :sep, '') <> :scope))
ORDER BY l.page_id, l.type LIMIT :limit;

-- name: links_of_object | Links of some relations that were written or confirmed, with a page as their object.
SELECT l.page_id AS subject_id, l.target_id AS object_id, l.type AS relation, l.context AS sentence
FROM page_link l CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = l.page_id OFFSET 0) AS p
WHERE l.target_id = :id AND l.account_id = :account_id AND l.target_id IS NOT NULL AND l.ended_at IS NULL
  AND l.origin IN ('explicit', 'confirmed') AND p.deleted_at IS NULL
  AND l.type = ANY (ARRAY(SELECT json_array_elements_text(:relations::json)))
  AND (:scope = '' OR EXISTS (SELECT 1 FROM page_collection c WHERE c.page_id = p.id
       AND REPLACE(:scope, :sep || c.collection || :sep, '') <> :scope))
ORDER BY l.page_id, l.type LIMIT :limit;

-- name: pages_within | Which of some pages a caller sees; OFFSET 0: by their ids, never all.
SELECT p.id, p.slug, p.title FROM json_array_elements_text(:ids::json) AS wanted (id)
CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = wanted.id OFFSET 0) AS p
WHERE p.account_id = :account_id AND p.deleted_at IS NULL
  AND (:scope = '' OR EXISTS (SELECT 1 FROM page_collection c WHERE c.page_id = p.id
       AND REPLACE(:scope, :sep || c.collection || :sep, '') <> :scope));

-- name: statements_touch | The links of some pages have changed: search reads them anew.
UPDATE memory_index SET change = :change WHERE page_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) AND entry <> '';
