-- name: prompts_under_way | What an account has of a model that has not ended: one look, so that what moves meanwhile is not missed.
SELECT * FROM prediction
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND state IN ('queued', 'starting', 'running', 'canceling')
ORDER BY id LIMIT :limit;

-- name: prompts_under_way_sizes | The characters of what has not ended.
SELECT LENGTH(inputs) + LENGTH(task) + COALESCE(LENGTH(output), 0) + COALESCE(LENGTH(logs), 0) AS size FROM prediction
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND state IN ('queued', 'starting', 'running', 'canceling')
ORDER BY id LIMIT :limit;

-- name: prompts_ended | What has ended and is not forgotten, newest first.
SELECT * FROM prediction AS p
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND completed_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM graph_forgotten f WHERE f.account_id = p.account_id AND f.prediction_id = p.id)
ORDER BY id DESC LIMIT :limit;

-- name: prompts_ended_sizes | The characters of what has ended, newest first.
SELECT LENGTH(inputs) + LENGTH(task) + COALESCE(LENGTH(output), 0) + COALESCE(LENGTH(logs), 0) AS size FROM prediction AS p
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND completed_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM graph_forgotten f WHERE f.account_id = p.account_id AND f.prediction_id = p.id)
ORDER BY id DESC LIMIT :limit;

-- name: prompt_named | The last prompt that a client called so.
SELECT * FROM prediction AS p
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND json_extract(task, '$.inputs.prompt_id') = :prompt_id
  AND NOT EXISTS (SELECT 1 FROM graph_forgotten f WHERE f.account_id = p.account_id AND f.prediction_id = p.id)
ORDER BY id DESC LIMIT 1;

-- name: prompts_forget | Leave out of the history what has ended: all, or what is called so.
INSERT INTO graph_forgotten (account_id, prediction_id)
SELECT account_id, id FROM prediction
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND completed_at IS NOT NULL
  AND (:everything = 1 OR json_extract(task, '$.inputs.prompt_id') IN (SELECT value FROM json_each(:prompt_ids)))
ON CONFLICT DO NOTHING;
