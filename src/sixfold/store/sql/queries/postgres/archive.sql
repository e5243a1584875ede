-- name: archive_predictions | Return all columns of predictions of `ids` (a JSON array) and of their parts at any depth.
WITH RECURSIVE below (id) AS (
    SELECT e.id COLLATE "C" FROM json_array_elements_text(:ids::json) AS e (id)
    UNION ALL SELECT c.id FROM below b, LATERAL (
        SELECT id FROM prediction WHERE parent_id = b.id OFFSET 0) AS c)
SELECT * FROM prediction WHERE id = ANY (ARRAY(SELECT id FROM below)) ORDER BY id;

-- name: archive_media | Return the files of predictions of `ids` (a JSON array) and of their parts, without their bytes.
WITH RECURSIVE below (id) AS (
    SELECT e.id COLLATE "C" FROM json_array_elements_text(:ids::json) AS e (id)
    UNION ALL SELECT c.id FROM below b, LATERAL (
        SELECT id FROM prediction WHERE parent_id = b.id OFFSET 0) AS c)
SELECT name, account_id, prediction_id, kind, content_type, size, sha256, blob, created_at, expires_at
FROM media WHERE prediction_id = ANY (ARRAY(SELECT id FROM below)) ORDER BY name;
