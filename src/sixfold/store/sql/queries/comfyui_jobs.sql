-- `|| ''` prevents the use of other indexes than those of unfinished predictions, as an account may have many that ended.
-- name: prompts_under_way | Return the ids of unfinished predictions of a model in one snapshot, so that a state change hides none of them.
SELECT id FROM (
    SELECT id FROM prediction
    WHERE state = 'queued' AND account_id || '' = :account_id AND model || '' = :model AND keyless = :keyless
      AND (:credential_id = '' OR credential_id || '' = :credential_id)
    UNION ALL
    SELECT id FROM prediction
    WHERE state IN ('starting', 'running', 'canceling') AND account_id || '' = :account_id AND model || '' = :model
      AND keyless = :keyless AND (:credential_id = '' OR credential_id || '' = :credential_id)
) AS q ORDER BY id || '' LIMIT :limit;

-- name: prompts_by_id | Return the states and prompt ids of predictions by their ids; `ids` is a JSON array.
SELECT id, state, prompt_id FROM prediction
WHERE id {in :ids} ORDER BY id;

-- name: prompts_ended | Return the ids of finished predictions of a model that are not removed from the history, newest first.
SELECT id FROM prediction AS p
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND prompt_id IS NOT NULL AND completed_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM graph_forgotten f WHERE f.account_id = p.account_id AND f.prediction_id = p.id)
ORDER BY id DESC LIMIT :limit;

-- name: prompt_named | Return the newest prediction of a model with the prompt id of a client.
SELECT * FROM prediction AS p
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND prompt_id = :prompt_id
  AND NOT EXISTS (SELECT 1 FROM graph_forgotten f WHERE f.account_id = p.account_id AND f.prediction_id = p.id)
ORDER BY id DESC LIMIT 1;

-- name: prompts_named | Return the ids of finished predictions of a model with the prompt ids of a client, a JSON array.
SELECT id FROM prediction
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND completed_at IS NOT NULL AND prompt_id {in :prompt_ids};

-- name: prompts_forget | Remove finished predictions from the history: all of them, or those of `ids`, a JSON array.
INSERT INTO graph_forgotten (account_id, prediction_id)
SELECT account_id, id FROM prediction
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND prompt_id IS NOT NULL AND completed_at IS NOT NULL
  AND (:everything = 1 OR id {in :ids})
ON CONFLICT DO NOTHING;
