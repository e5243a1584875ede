-- name: content_days | Return for how many days an account's calls are logged.
SELECT days FROM content_logging WHERE account_id = :account_id;

-- name: content_days_set | Set for how many days an account's calls are logged.
INSERT INTO content_logging (account_id, days, updated_at) VALUES (:account_id, :days, :now)
ON CONFLICT (account_id) DO UPDATE SET days = excluded.days, updated_at = excluded.updated_at;

-- name: content_insert | Insert the contents of a call, unless it was refunded; a repeated id keeps the first.
INSERT INTO content_log (account_id, id, key_id, face, model, request, response, created_at, expires_at)
SELECT :account_id, :id, :key_id, :face, :model, :request, :response, :now, :now + :life
WHERE NOT EXISTS (SELECT 1 FROM transfer WHERE id = 'refund:' || :id)
ON CONFLICT (account_id, id) DO NOTHING;

-- name: content_withdraw | Delete the contents of a refunded call.
DELETE FROM content_log WHERE account_id = :account_id AND id = :id;

-- name: content_get | Return the contents of a call.
SELECT id, key_id, face, model, request, response, created_at, expires_at FROM content_log
WHERE account_id = :account_id AND id = :id;

-- name: content_page | Return a page of an account's logged calls without their contents, newest first.
SELECT id, key_id, face, model, created_at, expires_at FROM content_log
WHERE account_id = :account_id AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: content_sweep | Delete some calls whose contents have expired.
DELETE FROM content_log WHERE (account_id, id) IN (
    SELECT account_id, id FROM content_log WHERE expires_at < :now ORDER BY expires_at LIMIT :limit)
RETURNING id;

-- name: export_content_log | Return the contents of an account's next call.
SELECT id, key_id, face, model, request, response, created_at, expires_at FROM content_log
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT 1;

-- name: erase_content_log | Delete the contents of an account's calls.
DELETE FROM content_log WHERE account_id = :account_id;

-- name: erase_content_logging | Delete the setting of an account's content log.
DELETE FROM content_logging WHERE account_id = :account_id;
