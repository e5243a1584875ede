-- name: lineage_source | Return one media file of an account with given content, with the earlier prediction that made it.
SELECT m.name, m.content_type, m.size, p.id, p.model
FROM media m
LEFT JOIN prediction p ON p.id = m.prediction_id AND m.kind = 'output' AND p.id < :before
WHERE m.account_id = :account_id AND m.blob = :blob AND (m.expires_at IS NULL OR m.expires_at > :now)
ORDER BY CASE WHEN p.id IS NULL THEN 1 ELSE 0 END, m.created_at, m.name LIMIT 1;

-- name: lineage_made | Return an account's later predictions whose task refers to a blob, oldest first.
SELECT * FROM prediction
WHERE account_id = :account_id AND id > :after AND task LIKE '%"' || :blob || '"%' ORDER BY id LIMIT :limit;

-- name: lineage_parts | Return child predictions, oldest first, at most a limit.
SELECT * FROM prediction WHERE parent_id = :parent_id ORDER BY id LIMIT :limit;

-- name: lineage_same | Return an account's other succeeded predictions with the same fingerprint, oldest first.
SELECT * FROM prediction
WHERE account_id = :account_id AND id <> :id AND state = 'succeeded'
  AND fingerprint = (SELECT fingerprint FROM prediction WHERE id = :id)
ORDER BY id LIMIT :limit;
