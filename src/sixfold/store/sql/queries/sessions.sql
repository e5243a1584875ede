-- name: session_insert | Insert a session.
INSERT INTO session (id, account_id, request_id, model, engine, quality, hardware, inputs, fps, rate, list_rate,
                     idle_us, token_hash, resume_hash, state, holder, lease_until, slice_amount, credential, credential_id,
                     created_at)
VALUES (:id, :account_id, :request_id, :model, :engine, :quality, :hardware, :inputs, :fps, :rate, :list_rate,
        :idle_us, :token_hash, :resume_hash, :state, :holder, :now + :lease, :slice_amount, :credential, :credential_id,
        :now)
RETURNING *;

-- name: session_by_id | Return a session by its id.
SELECT * FROM session WHERE id = :id;

-- name: session_of | Return a session by its id and account.
SELECT * FROM session WHERE id = :id AND account_id = :account_id
  AND (:credential_id = '' OR credential_id = :credential_id);

-- name: session_move | Change the state of a session if its state is as expected, and extend its lease.
UPDATE session SET state = :state, reason = COALESCE(:reason, reason), lease_until = :now + :lease
WHERE id = :id AND state = :from_state
RETURNING *;

-- name: session_ready | Mark a session as ready and start its first billing slice.
UPDATE session SET ready_at = :now, slice_at = :now WHERE id = :id RETURNING *;

-- name: session_pause | Mark a session as paused from `:at` on.
UPDATE session SET paused_at = :at WHERE id = :id AND paused_at IS NULL RETURNING *;

-- name: session_resume | Continue the billing slice of a paused session where it stopped.
UPDATE session SET slice_at = slice_at + (:now - paused_at), paused_at = NULL WHERE id = :id RETURNING *;

-- name: session_skip | Postpone the billing slice of an open session, at most to the present or to the start of its pause.
UPDATE session
SET slice_at = CASE WHEN slice_at + :us < COALESCE(paused_at, :now) THEN slice_at + :us ELSE COALESCE(paused_at, :now) END
WHERE id = :id AND holder = :holder AND slice_at IS NOT NULL AND closed_at IS NULL
RETURNING id;

-- name: session_restart_slice | Let the billing slice of a session begin now, because the clock was changed.
UPDATE session SET slice_at = :now WHERE id = :id RETURNING *;

-- name: session_slice | Start the next billing slice at the end of the previous one and add the captured cost.
UPDATE session
SET slice = slice + 1, slice_amount = :amount, slice_at = slice_at + :life, cost = cost + :captured
WHERE id = :id AND slice = :slice
RETURNING *;

-- name: session_settle | Clear the pending billing slice of a session and add the captured cost.
UPDATE session SET slice_amount = 0, cost = cost + :captured WHERE id = :id RETURNING *;

-- name: session_end | Set the end time of a session.
UPDATE session SET closed_at = :now WHERE id = :id RETURNING *;

-- name: session_heartbeat | Extend the leases of the sessions in `ids` (a JSON array) that this server holds.
UPDATE session SET lease_until = :now + :lease WHERE id {in :ids} AND holder = :holder AND closed_at IS NULL
RETURNING id;

-- name: session_lost | Return open sessions whose lease expired before `before`, without this server's sessions in `ids` (a JSON array).
SELECT * FROM session
WHERE closed_at IS NULL AND lease_until < :before AND NOT (holder = :holder AND id {in :ids})
ORDER BY lease_until, id LIMIT :limit;

-- name: session_count | Count an account's open sessions.
SELECT COUNT(*) AS total FROM session WHERE account_id = :account_id AND closed_at IS NULL;

-- name: ledger_sessions_unsettled | Return sessions whose billing slices or cost do not match their holds.
SELECT s.id FROM session s
WHERE (s.closed_at IS NOT NULL AND s.slice_amount > 0)
   OR (s.slice_amount > 0) <> EXISTS (SELECT 1 FROM hold h WHERE h.id = s.id || ':' || s.slice
                                      AND h.state = 'pending' AND h.amount = s.slice_amount)
   OR s.cost <> (SELECT COALESCE(SUM(h.captured), 0) FROM hold h
                 WHERE h.id >= s.id || ':' AND h.id < s.id || ';');
