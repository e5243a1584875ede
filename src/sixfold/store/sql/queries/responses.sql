-- name: response_keep | A response that an account keeps; one whose server gives an id twice is the later.
INSERT INTO relay_response (account_id, id, previous, server, size, credential_id, created_at, input, response)
VALUES (:account_id, :id, :previous, :server, :size, :credential_id, :now, :input, :response)
ON CONFLICT (account_id, id) DO UPDATE SET previous = excluded.previous, server = excluded.server,
    size = excluded.size, credential_id = excluded.credential_id, created_at = excluded.created_at, input = excluded.input, response = excluded.response;

-- name: response_conversation | A response and those before it, the first at the front; `size` is of it and all after it.
WITH RECURSIVE chain (id, previous, size, depth) AS (
    SELECT id, previous, size, 1 FROM relay_response WHERE account_id = :account_id AND id = :id
      AND (:credential_id = '' OR credential_id = :credential_id)
    UNION ALL
    SELECT r.id, r.previous, c.size + r.size, c.depth + 1
    FROM chain c JOIN relay_response r ON r.account_id = :account_id AND r.id = c.previous
    WHERE c.depth < :links AND c.size <= :most AND (:credential_id = '' OR r.credential_id = :credential_id)
)
SELECT r.id, r.previous, r.server, r.input, r.response, c.size
FROM chain c JOIN relay_response r ON r.account_id = :account_id AND r.id = c.id
ORDER BY c.depth DESC;

-- name: response_known | Whether any account keeps a response of this id.
SELECT id FROM relay_response WHERE id = :id LIMIT 1;

-- name: response_shown | One response as it was told.
SELECT response FROM relay_response WHERE account_id = :account_id AND id = :id
  AND (:credential_id = '' OR credential_id = :credential_id);

-- name: response_forget | Forget one; those after it stay, and cannot be gone on from.
DELETE FROM relay_response WHERE account_id = :account_id AND id = :id
  AND (:credential_id = '' OR credential_id = :credential_id) RETURNING id;

-- name: response_sweep | Forget what is too old, but not while something goes on from it.
DELETE FROM relay_response AS r
WHERE created_at < :now - :life
  AND NOT EXISTS (SELECT 1 FROM relay_response n WHERE n.account_id = r.account_id AND n.previous = r.id);

-- name: delete_excess_responses | Forget the oldest of an account that keeps too much.
DELETE FROM relay_response WHERE account_id = :account_id AND id IN (
    SELECT id FROM (
        SELECT id, SUM(size) OVER (ORDER BY created_at DESC, id DESC) AS total
        FROM relay_response WHERE account_id = :account_id) AS counted
    WHERE total > :most);
