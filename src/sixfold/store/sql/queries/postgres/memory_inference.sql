-- `OFFSET 0` makes the planner look up pages by id. Without statistics, such as right after an import, it
-- would scan all pages of the account.

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

-- name: pages_within | Return the pages of a list of ids within the allowed collections; `OFFSET 0` forces a lookup by id.
SELECT p.id, p.slug, p.title FROM json_array_elements_text(:ids::json) AS requested (id)
CROSS JOIN LATERAL (SELECT * FROM page WHERE page.id = requested.id OFFSET 0) AS p
WHERE p.account_id = :account_id AND p.deleted_at IS NULL
  AND {in_scope p.id};
