-- name: prompts_by_id | Return the states and prompt ids of predictions by their ids.
SELECT id, state, task::json #>> '{inputs,prompt_id}' AS prompt_id FROM prediction
WHERE id IN (SELECT json_array_elements_text(:ids::json)) ORDER BY id;

-- name: prompt_named | Return the newest prediction of a model with the prompt id of a client.
SELECT * FROM prediction AS p
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND task::json #>> '{inputs,prompt_id}' = :prompt_id
  AND NOT EXISTS (SELECT 1 FROM graph_forgotten f WHERE f.account_id = p.account_id AND f.prediction_id = p.id)
ORDER BY id DESC LIMIT 1;

-- name: prompts_named | Return the ids of finished predictions of a model with the prompt ids of a client, a JSON array.
SELECT id FROM prediction
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND completed_at IS NOT NULL
  AND task::json #>> '{inputs,prompt_id}' = ANY (ARRAY(SELECT json_array_elements_text(:prompt_ids::json)));

-- name: prompts_forget | Remove finished predictions from the history: all of them, or those of `ids`, a JSON array.
INSERT INTO graph_forgotten (account_id, prediction_id)
SELECT account_id, id FROM prediction
WHERE account_id = :account_id AND keyless = :keyless AND (:credential_id = '' OR credential_id = :credential_id)
  AND model = :model AND completed_at IS NOT NULL
  AND (:everything = 1 OR id IN (SELECT json_array_elements_text(:ids::json)))
ON CONFLICT DO NOTHING;
