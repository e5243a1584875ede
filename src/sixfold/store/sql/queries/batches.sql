-- name: batch_insert | Insert a batch that is to be validated.
INSERT INTO batch (id, account_id, credential_id, key_id, grant_id, dialect, endpoint, state, input_file_id,
                   input_media, metadata, headers, output_seconds, total, response_id, created_at, expires_at)
VALUES (:id, :account_id, :credential_id, :key_id, :grant_id, :dialect, :endpoint, 'validating', :input_file_id,
        :input_media, :metadata, :headers, :output_seconds, :total, :response_id, :now,
        :now + :window);

-- name: batch_created | Return a batch by its id, with the id of its background response, if any.
SELECT id, response_id FROM batch WHERE id = :id;

-- name: batches_unfinished | Return the number of an account's batches, or background responses, that have not ended.
SELECT COUNT(*) AS batches FROM batch
WHERE account_id = :account_id AND ended_at IS NULL AND (response_id IS NULL) = (CAST(:response AS INTEGER) = 0);

-- name: batch_by_id | Return a batch that a tenant sees, and the counts of its lines that have ended.
{counted_batches}
WHERE b.id = :id AND b.account_id = :account_id AND b.dialect = :dialect AND b.response_id IS NULL
  AND (:credential_id = '' OR b.credential_id = :credential_id);

-- name: batches_before | Return a page of a tenant's batches, newest first.
{counted_batches}
WHERE b.account_id = :account_id AND b.dialect = :dialect AND b.response_id IS NULL AND b.id < :bound
  AND (:credential_id = '' OR b.credential_id = :credential_id)
ORDER BY b.id DESC LIMIT :limit;

-- name: batches_after | Return a page of a tenant's batches, oldest first.
{counted_batches}
WHERE b.account_id = :account_id AND b.dialect = :dialect AND b.response_id IS NULL AND b.id > :bound
  AND (:credential_id = '' OR b.credential_id = :credential_id)
ORDER BY b.id LIMIT :limit;

-- name: batch_of_response | Return the batch of a tenant's background response.
SELECT b.*, CAST(:now AS BIGINT) AS now FROM batch b
WHERE b.response_id = :response_id AND b.account_id = :account_id
  AND (:credential_id = '' OR b.credential_id = :credential_id);

-- name: batch_response_canceled | Return the batch of a background response if it was canceled.
SELECT id FROM batch WHERE response_id = :response_id AND outcome = 'cancelled';

-- name: batch_cancel | Let a batch end as cancelled; return no row if its end is decided already.
UPDATE batch SET state = 'cancelling', outcome = 'cancelled', cancelling_at = :now
WHERE id = :id AND outcome IS NULL AND state IN ('validating', 'in_progress') RETURNING id;

-- name: batch_delete | Delete a batch that has ended.
DELETE FROM batch WHERE id = :id AND ended_at IS NOT NULL RETURNING output_file_id;

-- name: batches_sweep | Delete batches that ended longer ago than `life`.
DELETE FROM batch WHERE ended_at < :now - :life;

-- name: batches_open | Return batches with due work, least recently claimed first, at most a limit.
SELECT b.*, m.blob AS input_blob, CAST(:now AS BIGINT) AS now
FROM batch b LEFT JOIN media m ON m.name = b.input_media
WHERE b.ended_at IS NULL AND (b.resume_at <= :now OR b.outcome IS NOT NULL OR b.expires_at <= :now)
ORDER BY b.claimed_at, b.id LIMIT :limit;

-- name: batch_credential | Return the valid key that a batch's lines run with: its own, or that of its OAuth grant.
SELECT k.id FROM api_key k JOIN account a ON a.id = k.account_id
WHERE k.id = :key_id AND a.closing_at IS NULL AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now)
UNION ALL
SELECT g.key_id FROM oauth_grant g JOIN account a ON a.id = g.account_id
WHERE g.id = :grant_id AND g.ended_at IS NULL AND g.expires_at > :now AND a.closing_at IS NULL
LIMIT 1;

-- name: batch_suspended | Return a row if the account of a batch, or the user or the creator of its key, is suspended.
SELECT a.id FROM account a LEFT JOIN api_key k ON k.id = :key_id
LEFT JOIN member m ON m.id = k.member_id LEFT JOIN account p ON p.id = m.person_id
LEFT JOIN account u ON u.id = k.creator_id
WHERE a.id = :account_id
  AND (a.suspended_at IS NOT NULL OR p.suspended_at IS NOT NULL OR u.suspended_at IS NOT NULL);

-- name: batch_decide | Decide how a batch ends, unless that is decided already.
UPDATE batch SET outcome = :outcome, errors = :errors WHERE id = :id AND outcome IS NULL AND ended_at IS NULL
RETURNING id;

-- name: batch_decide_done | Let a batch end as completed if none of its lines is left.
UPDATE batch SET outcome = 'completed'
WHERE id = :id AND outcome IS NULL AND state = 'in_progress'
  AND NOT EXISTS (SELECT 1 FROM batch_line l WHERE l.batch_id = batch.id AND l.state = 'pending')
  AND NOT EXISTS (SELECT 1 FROM batch_line l WHERE l.batch_id = batch.id AND l.state = 'running')
RETURNING id;

-- name: batch_lease | Lease a batch in one of two states to a server for its validation or its end.
UPDATE batch SET holder = :holder, lease_until = :now + :lease
WHERE id = :id AND ended_at IS NULL AND (state = :state OR outcome IS NOT NULL AND :state = '')
  AND (holder IS NULL OR holder = :holder OR lease_until < :now OR NOT server_lives(holder))
RETURNING id;

-- name: batch_finalize | Begin the end of a batch of which no line is running.
UPDATE batch SET state = CASE WHEN state = 'cancelling' THEN state ELSE 'finalizing' END,
    finalizing_at = COALESCE(finalizing_at, :now)
WHERE id = :id AND holder = :holder
  AND NOT EXISTS (SELECT 1 FROM batch_line l WHERE l.batch_id = batch.id AND l.state = 'running')
RETURNING id;

-- name: batch_started | Let a validated batch run.
UPDATE batch SET state = 'in_progress', in_progress_at = :now, total = :total, holder = NULL, lease_until = NULL
WHERE id = :id AND holder = :holder AND state = 'validating' AND outcome IS NULL RETURNING id;

-- name: batch_end | End a batch that a server has leased.
UPDATE batch SET state = :state, outcome = :state, ended_at = :now, output_file_id = :output_file_id,
    error_file_id = :error_file_id, succeeded = :succeeded, failed = :failed, total = :total, errors = :errors,
    holder = NULL, lease_until = NULL, waiting_for = NULL
WHERE id = :id AND holder = :holder AND ended_at IS NULL RETURNING id;

-- name: batch_pause | Let a batch wait for a reason.
UPDATE batch SET resume_at = :now + :delay, waiting_for = :reason WHERE id = :id AND ended_at IS NULL;

-- name: batch_touch | Record that lines of a running batch are claimed; return no row if it is paused or about to end.
UPDATE batch SET claimed_at = :now, waiting_for = NULL
WHERE id = :id AND state = 'in_progress' AND outcome IS NULL AND resume_at <= :now RETURNING id;

-- name: batch_line_insert | Insert a line of a batch unless it exists.
INSERT INTO batch_line (batch_id, number, custom_id, start, length, state)
VALUES (:batch_id, :number, :custom_id, :start, :length, 'pending') ON CONFLICT DO NOTHING;

-- name: batch_lines_claim | Lease the next lines of a batch to this server.
UPDATE batch_line SET state = 'running', holder = :holder, lease_until = :now + :lease
WHERE batch_id = :batch_id AND number IN (
    SELECT l.number FROM batch_line l WHERE l.batch_id = :batch_id AND l.state = 'pending' AND l.ready_at <= :now
    ORDER BY l.tries, l.number LIMIT :limit {skip_locked l})
RETURNING number, custom_id, start, length, tries, attempt;

-- name: batch_lines_renew | Renew the leases of this server's lines in `ids` (a JSON array of batches and numbers, with a `/` between).
UPDATE batch_line SET lease_until = :now + :lease
WHERE state = 'running' AND holder = :holder AND batch_id || '/' || number {in :ids};

-- name: batch_lines_reclaim | Take back lines whose lease has expired or whose server is gone.
UPDATE batch_line SET state = 'pending', holder = NULL, lease_until = NULL
WHERE state = 'running' AND (lease_until < :now OR (holder <> :holder AND NOT server_lives(holder)));

-- name: batch_line_finish | Store the answer to a line, unless it has one.
UPDATE batch_line SET state = 'done', status = :status, request_id = :request_id, response = :response, holder = NULL,
    lease_until = NULL
WHERE batch_id = :batch_id AND number = :number AND state <> 'done' RETURNING number;

-- name: batch_line_requeue | Let this server's line wait for another try.
UPDATE batch_line SET state = 'pending', holder = NULL, lease_until = NULL, tries = tries + :tries,
    attempt = attempt + :attempt, ready_at = :now + :delay
WHERE batch_id = :batch_id AND number = :number AND state = 'running' AND holder = :holder;

-- name: batch_lines_page | Return a page of a batch's lines in order.
SELECT number, custom_id, status, request_id, response FROM batch_line
WHERE batch_id = :batch_id AND number > :after ORDER BY number LIMIT :limit;

-- name: batch_line_sizes | Return the lengths of the answers to the next lines of a batch, in characters.
SELECT number, COALESCE(LENGTH(response), 0) AS size FROM batch_line
WHERE batch_id = :batch_id AND number > :after ORDER BY number LIMIT :limit;

-- name: batch_lines_unanswered | Return the next lines of a batch without an answer.
SELECT number, custom_id, start, length, tries, attempt FROM batch_line
WHERE batch_id = :batch_id AND number > :after AND state = 'pending' ORDER BY number LIMIT :limit;

-- name: batch_lines_delete | Delete the lines of a batch.
DELETE FROM batch_line WHERE batch_id = :batch_id;
