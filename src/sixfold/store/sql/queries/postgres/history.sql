-- name: history_entries | Return predictions of `ids` (a JSON array) for a list: the beginnings of inputs and of texts instead of all.
SELECT id, account_id, credential_id, model, state, quality, output_kind, cost, list_price, error, created_at, completed_at,
       CASE WHEN withheld = 0 THEN substr(inputs, 1, 4000) ELSE '' END AS inputs,
       CASE WHEN withheld = 0 AND output_kind IN ('text', 'json') THEN substr(output, 1, 600) END AS output
FROM prediction WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)));

-- name: history_files | Return the unexpired output files of predictions of `ids`, a JSON array.
SELECT prediction_id, name, content_type, size, created_at FROM media
WHERE prediction_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) AND kind = 'output'
  AND (expires_at IS NULL OR expires_at > :now)
ORDER BY prediction_id DESC, name LIMIT :limit;

-- name: history_parts | Return the parts of predictions of `ids` (a JSON array), oldest first.
SELECT id, parent_id, model, state FROM prediction
WHERE parent_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) ORDER BY parent_id, id LIMIT :limit;

-- name: history_sessions_by_id | Return an account's live sessions of `ids`, a JSON array.
SELECT id, model, inputs, state, reason, cost, list_rate, created_at, ready_at, closed_at FROM session
WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) AND account_id = :account_id
  AND (:credential_id = '' OR credential_id = :credential_id);

-- name: history_recordings | Return the latest succeeded recording of each live session of `sessions`, a JSON array of objects with two ids between which it was created and a pattern for its inputs.
SELECT (s.value ->> 'id') AS session_id, p.id FROM json_array_elements(:sessions::json) AS s (value)
JOIN prediction p ON p.id = (
    SELECT r.id FROM prediction r
    WHERE r.account_id = :account_id AND r.id > (s.value ->> 'after') AND r.id < (s.value ->> 'before') AND r.model = 'live-recording'
      AND r.state = 'succeeded' AND r.withheld = 0 AND r.inputs LIKE (s.value ->> 'pattern')
      AND (:credential_id = '' OR r.credential_id = :credential_id)
    ORDER BY r.id DESC LIMIT 1);

-- name: history_delete_messages | Delete the webhook deliveries about predictions of `ids` (a JSON array) and their parts at any depth.
WITH RECURSIVE below (id) AS (
    SELECT e.id COLLATE "C" FROM json_array_elements_text(:ids::json) AS e (id)
    UNION ALL SELECT c.id FROM below b, LATERAL (
        SELECT id FROM prediction WHERE parent_id = b.id OFFSET 0) AS c)
DELETE FROM webhook_outbox WHERE prediction_id = ANY (ARRAY(SELECT id COLLATE "default" FROM below));

-- name: history_delete_files | Mark the files of predictions of `ids` (a JSON array) and their parts as expired, so that the sweep deletes their bytes.
WITH RECURSIVE below (id) AS (
    SELECT e.id COLLATE "C" FROM json_array_elements_text(:ids::json) AS e (id)
    UNION ALL SELECT c.id FROM below b, LATERAL (
        SELECT id FROM prediction WHERE parent_id = b.id OFFSET 0) AS c)
UPDATE media SET expires_at = :now, prediction_id = NULL WHERE prediction_id = ANY (ARRAY(SELECT id FROM below));

-- name: history_delete_prompts | Forget that predictions of `ids` (a JSON array) and their parts were removed from the workflow history.
WITH RECURSIVE below (id) AS (
    SELECT e.id COLLATE "C" FROM json_array_elements_text(:ids::json) AS e (id)
    UNION ALL SELECT c.id FROM below b, LATERAL (
        SELECT id FROM prediction WHERE parent_id = b.id OFFSET 0) AS c)
DELETE FROM graph_forgotten f USING prediction p
WHERE p.id = ANY (ARRAY(SELECT id FROM below)) AND f.account_id = p.account_id AND f.prediction_id = p.id;

-- name: history_delete_shares | End the shares of predictions of `ids` (a JSON array) and their parts.
WITH RECURSIVE below (id) AS (
    SELECT e.id COLLATE "C" FROM json_array_elements_text(:ids::json) AS e (id)
    UNION ALL SELECT c.id FROM below b, LATERAL (
        SELECT id FROM prediction WHERE parent_id = b.id OFFSET 0) AS c)
DELETE FROM share s USING prediction p
WHERE p.id = ANY (ARRAY(SELECT id FROM below)) AND s.account_id = p.account_id AND s.kind = 'run' AND s.object_id = p.id;

-- name: history_delete_predictions | Delete predictions of `ids` (a JSON array) and their parts at any depth.
WITH RECURSIVE below (id) AS (
    SELECT e.id COLLATE "C" FROM json_array_elements_text(:ids::json) AS e (id)
    UNION ALL SELECT c.id FROM below b, LATERAL (
        SELECT id FROM prediction WHERE parent_id = b.id OFFSET 0) AS c)
DELETE FROM prediction WHERE id = ANY (ARRAY(SELECT id FROM below));

-- name: retention_standings_delete | Delete the saved states of live sessions of `ids`, a JSON array.
DELETE FROM session_standing WHERE session_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)));

-- name: retention_sessions_delete | Delete live sessions of `ids`, a JSON array.
DELETE FROM session WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)));

-- name: retention_audit_delete | Delete audit entries of `ids`, a JSON array.
DELETE FROM audit WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)));

-- name: media_origins | Return the file names of an account's media files of `names` (a JSON array), and the inputs of the runs that generated them.
SELECT m.name, m.file_name, CASE WHEN p.withheld = 0 THEN substr(p.inputs, 1, 4000) ELSE '' END AS inputs
FROM media m LEFT JOIN prediction p ON p.id = m.prediction_id AND m.kind = 'output'
WHERE m.name = ANY (ARRAY(SELECT json_array_elements_text(:names::json))) AND m.account_id = :account_id;
