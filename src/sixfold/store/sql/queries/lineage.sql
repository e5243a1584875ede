-- name: lineage_source | Return one media file of an account with given content, with the earlier prediction that made it.
SELECT m.name, m.content_type, m.size, p.id, p.model
FROM media m
LEFT JOIN prediction p ON p.id = m.prediction_id AND m.kind = 'output' AND p.id < :before
WHERE m.account_id = :account_id AND m.blob = :blob AND (m.expires_at IS NULL OR m.expires_at > :now)
ORDER BY CASE WHEN p.id IS NULL THEN 1 ELSE 0 END, m.created_at, m.name LIMIT 1;

-- name: lineage_made | Return those of an account's next predictions whose task refers to a blob, oldest first.
SELECT id, model, state, created_at, output_kind,
       CASE WHEN withheld = 0 AND LENGTH(output) <= :most_chars THEN output END AS output
FROM (SELECT * FROM prediction WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :read) AS later
WHERE task LIKE '%"' || :blob || '"%' ORDER BY id LIMIT :limit;

-- name: lineage_parts | Return child predictions, oldest first, at most a limit.
SELECT id, model, state, created_at, output_kind,
       CASE WHEN withheld = 0 AND LENGTH(output) <= :most_chars THEN output END AS output
FROM prediction WHERE parent_id = :parent_id ORDER BY id LIMIT :limit;

-- name: lineage_same | Return an account's other succeeded predictions with the same fingerprint, oldest first.
SELECT p.id, p.model, p.state, p.created_at, p.output_kind,
       CASE WHEN p.withheld = 0 AND p.output = o.output THEN 1 ELSE 0 END AS is_same,
       CASE WHEN p.withheld = 0 AND LENGTH(p.output) <= :most_chars THEN p.output END AS output
FROM prediction p JOIN prediction o ON o.id = :id AND p.fingerprint = o.fingerprint
WHERE p.account_id = :account_id AND p.id <> :id AND p.state = 'succeeded'
ORDER BY p.id LIMIT :limit;
