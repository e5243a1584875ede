-- name: response_keep | Insert a stored response; a repeated id replaces the earlier one.
INSERT INTO relay_response (account_id, id, previous, server, size, credential_id, conversation, place, created_at, input,
    response)
VALUES (:account_id, :id, :previous, :server, :size, :credential_id, :conversation, :place, :now, :input, :response)
ON CONFLICT (account_id, id) DO UPDATE SET previous = excluded.previous, server = excluded.server,
    size = excluded.size, credential_id = excluded.credential_id, conversation = excluded.conversation,
    place = excluded.place, created_at = excluded.created_at, input = excluded.input, response = excluded.response;

-- name: response_conversation | Return a response and its predecessors, oldest first; `size` is the sum from each to the newest.
{response_chain}
SELECT r.id, r.previous, r.server, r.input, r.response, r.conversation, r.place, c.size
FROM chain c JOIN relay_response r ON r.account_id = :account_id AND r.id = c.id
ORDER BY c.depth DESC;

-- name: response_chain_sizes | Return the size of a response with its predecessors, and the conversation in which it began.
{response_chain}
SELECT c.size, r.conversation FROM chain c JOIN relay_response r ON r.account_id = :account_id AND r.id = c.id
ORDER BY c.depth DESC LIMIT 1;

-- name: response_sizes | Return the total size of stored responses.
SELECT COALESCE(SUM(size), 0) AS size FROM relay_response
WHERE account_id = :account_id AND id {in :ids};

-- name: response_known | Return a response's id if any account stores it.
SELECT id FROM relay_response WHERE id = :id LIMIT 1;

-- name: response_size | Return the size of a stored response, and the target that also stores it.
SELECT size, server FROM relay_response WHERE account_id = :account_id AND id = :id
  AND (:credential_id = '' OR credential_id = :credential_id);

-- name: response_shown | Return a stored response as it was sent to the client.
SELECT response FROM relay_response WHERE account_id = :account_id AND id = :id
  AND (:credential_id = '' OR credential_id = :credential_id);

-- name: response_forget | Delete a stored response; its successors remain but cannot be continued.
DELETE FROM relay_response WHERE account_id = :account_id AND id = :id
  AND (:credential_id = '' OR credential_id = :credential_id) RETURNING id;

-- name: response_sweep | Delete expired stored responses that have no successor.
DELETE FROM relay_response AS r
WHERE created_at < :now - :life
  AND NOT EXISTS (SELECT 1 FROM relay_response n WHERE n.account_id = r.account_id AND n.previous = r.id);

-- name: delete_excess_responses | Delete an account's oldest stored responses beyond a total size.
DELETE FROM relay_response WHERE account_id = :account_id AND id IN (
    SELECT id FROM (
        SELECT id, SUM(size) OVER (ORDER BY created_at DESC, id DESC) AS total
        FROM relay_response WHERE account_id = :account_id) AS counted
    WHERE total > :most);
