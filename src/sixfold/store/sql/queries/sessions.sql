-- name: session_insert | A session that was asked for.
INSERT INTO session (id, account_id, request_id, model, engine, quality, hardware, inputs, fps, rate, list_rate,
                     idle_us, token_hash, resume_hash, state, holder, lease_until, slice_amount, credential, credential_id,
                     created_at)
VALUES (:id, :account_id, :request_id, :model, :engine, :quality, :hardware, :inputs, :fps, :rate, :list_rate,
        :idle_us, :token_hash, :resume_hash, :state, :holder, :now + :lease, :slice_amount, :credential, :credential_id,
        :now)
RETURNING *;

-- name: session_by_id | One session.
SELECT * FROM session WHERE id = :id;

-- name: session_of | One session of a tenant.
SELECT * FROM session WHERE id = :id AND account_id = :account_id
  AND (:credential_id = '' OR credential_id = :credential_id);

-- name: session_move | One step of a session's life, if it still stands where the step begins.
UPDATE session SET state = :state, reason = COALESCE(:reason, reason), lease_until = :now + :lease
WHERE id = :id AND state = :from_state
RETURNING *;

-- name: session_ready | From here on the first slice is paid for.
UPDATE session SET ready_at = :now, slice_at = :now WHERE id = :id RETURNING *;

-- name: session_slice | The next slice, which begins where the one before it ended.
UPDATE session
SET slice = slice + 1, slice_amount = :amount, slice_at = slice_at + :life, cost = cost + :captured
WHERE id = :id AND slice = :slice
RETURNING *;

-- name: session_settle | No slice is pending any more.
UPDATE session SET slice_amount = 0, cost = cost + :captured WHERE id = :id RETURNING *;

-- name: session_end | The moment at which a session ended.
UPDATE session SET closed_at = :now WHERE id = :id RETURNING *;

-- name: session_heartbeat | Extend the lease of every open session of this server.
UPDATE session SET lease_until = :now + :lease WHERE holder = :holder AND closed_at IS NULL
RETURNING id;

-- name: session_lost | Open sessions of servers that let them lapse.
SELECT * FROM session
WHERE closed_at IS NULL AND holder <> :holder AND lease_until < :before
ORDER BY lease_until, id LIMIT :limit;

-- name: session_count | How many open sessions an account has.
SELECT COUNT(*) AS total FROM session WHERE account_id = :account_id AND closed_at IS NULL;

-- name: ledger_sessions_unsettled | Sessions whose slices and holds tell different stories.
SELECT s.id FROM session s
WHERE (s.closed_at IS NOT NULL AND s.slice_amount > 0)
   OR (s.slice_amount > 0) <> EXISTS (SELECT 1 FROM hold h WHERE h.id = s.id || ':' || s.slice
                                      AND h.state = 'pending' AND h.amount = s.slice_amount)
   OR s.cost <> (SELECT COALESCE(SUM(h.captured), 0) FROM hold h
                 WHERE h.id >= s.id || ':' AND h.id < s.id || ';');
