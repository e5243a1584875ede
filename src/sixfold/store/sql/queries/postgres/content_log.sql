-- name: export_content_log | Return the contents of an account's next calls, oldest first, until they have a number of bytes.
SELECT * FROM (SELECT *, SUM(bytes) OVER (ORDER BY id) - bytes AS bytes_before FROM (
    SELECT id, key_id, face, model, request, response, created_at, expires_at,
           COALESCE(OCTET_LENGTH(request), 0) + COALESCE(OCTET_LENGTH(response), 0) AS bytes FROM content_log
    WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit
) AS page) AS fitting WHERE bytes_before < :bytes ORDER BY id;
