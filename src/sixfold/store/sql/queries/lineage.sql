-- name: lineage_source | The name of an account's content, and the earlier prediction that made it, if one did.
SELECT m.name, m.content_type, m.size, p.id, p.model
FROM media m
LEFT JOIN prediction p ON p.id = m.prediction_id AND m.kind = 'output' AND p.id < :before
WHERE m.account_id = :account_id AND m.blob = :blob AND (m.expires_at IS NULL OR m.expires_at > :now)
ORDER BY CASE WHEN p.id IS NULL THEN 1 ELSE 0 END, m.created_at, m.name LIMIT 1;

-- name: lineage_made | What an account made of content later on.
SELECT * FROM prediction
WHERE account_id = :account_id AND id > :after AND task LIKE '%"' || :blob || '"%' ORDER BY id LIMIT :limit;

-- name: lineage_parts | What was ordered for a prediction.
SELECT * FROM prediction WHERE parent_id = :parent_id ORDER BY id LIMIT :limit;

-- name: lineage_same | What else an account was given for exactly the same.
SELECT * FROM prediction
WHERE account_id = :account_id AND id <> :id AND state = 'succeeded'
  AND fingerprint = (SELECT fingerprint FROM prediction WHERE id = :id)
ORDER BY id LIMIT :limit;
