-- name: prompts_under_way | Return the ids of unfinished predictions of a model in one snapshot, so that a state change hides none of them.
SELECT id FROM prediction
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND state IN ('queued', 'starting', 'running', 'canceling')
ORDER BY id LIMIT :limit;

-- name: prompts_under_way_ids | Return ids and states of the rows of `prompts_under_way`.
SELECT id, state, json_extract(task, '$.inputs.prompt_id') AS prompt_id FROM prediction
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND state IN ('queued', 'starting', 'running', 'canceling')
ORDER BY id LIMIT :limit;

-- name: prompts_under_way_count | Count the rows of `prompts_under_way`.
SELECT COUNT(*) AS count FROM (
    SELECT 1 FROM prediction
    WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
      AND model = :model AND state IN ('queued', 'starting', 'running', 'canceling') LIMIT :limit) AS q;

-- name: prompts_ended | Return the ids of finished predictions of a model that are not removed from the history, newest first.
SELECT id FROM prediction AS p
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND completed_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM graph_forgotten f WHERE f.account_id = p.account_id AND f.prediction_id = p.id)
ORDER BY id DESC LIMIT :limit;

-- name: prompt_named | Return the newest prediction of a model with the prompt id of a client.
SELECT * FROM prediction AS p
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND json_extract(task, '$.inputs.prompt_id') = :prompt_id
  AND NOT EXISTS (SELECT 1 FROM graph_forgotten f WHERE f.account_id = p.account_id AND f.prediction_id = p.id)
ORDER BY id DESC LIMIT 1;

-- name: prompts_forget | Remove finished predictions from the history: all of them, or those with given prompt ids.
INSERT INTO graph_forgotten (account_id, prediction_id)
SELECT account_id, id FROM prediction
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND completed_at IS NOT NULL
  AND (:everything = 1 OR json_extract(task, '$.inputs.prompt_id') IN (SELECT value FROM json_each(:prompt_ids)))
ON CONFLICT DO NOTHING;
