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
