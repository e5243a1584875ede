-- name: sweep_lease_take | Take or renew the lease of a sweep; return no row while another server has it.
INSERT INTO sweep_lease (name, holder, lease_until) VALUES (:name, :holder, :now + :length)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until
WHERE sweep_lease.holder = excluded.holder OR sweep_lease.lease_until <= :now OR NOT server_lives(sweep_lease.holder)
RETURNING name;

-- name: sweep_lease_end | End the lease of a sweep, so that another server can take it at once.
DELETE FROM sweep_lease WHERE name = :name AND holder = :holder;

-- name: retention_media | Return predictions between two ids, oldest first; `due` is 1 for one that has ended and has output files.
SELECT p.id, p.account_id,
       CASE WHEN p.model <> 'training' AND p.state IN ('succeeded', 'failed', 'canceled', 'expired')
            AND (SELECT m.name FROM media m WHERE m.prediction_id = p.id AND m.kind = 'output'
                 AND (m.expires_at IS NULL OR m.expires_at > :now) LIMIT 1) IS NOT NULL
            THEN 1 ELSE 0 END AS due
FROM prediction p WHERE p.id > :after AND p.id < :before ORDER BY p.id LIMIT :limit;

-- name: retention_media_expire | Mark the output files of a prediction as expired, so that the sweep deletes their bytes.
UPDATE media SET expires_at = :now
WHERE prediction_id = :id AND kind = 'output' AND (expires_at IS NULL OR expires_at > :now);

-- name: retention_media_uncount | Subtract the output files of a prediction from the bytes of its account's free runs.
UPDATE prediction SET stored_bytes = 0 WHERE id = :id AND stored_bytes > 0;

-- name: retention_calls | Return gateway calls between two ids, oldest first; `due` is 1 for one that has ended.
SELECT id, account_id, CASE WHEN state = 'running' THEN 0 ELSE 1 END AS due
FROM relay_call WHERE id > :after AND id < :before ORDER BY id LIMIT :limit;

-- name: retention_calls_delete | Delete a gateway call from the log.
DELETE FROM relay_call WHERE id = :id;

-- name: retention_operators | Return what operators did between two ids, oldest first; `due` is always 1.
SELECT id, actor_id AS account_id, 1 AS due FROM operator_action
WHERE id > :after AND id < :before ORDER BY id LIMIT :limit;

-- name: retention_operators_delete | Delete the record of what an operator did.
DELETE FROM operator_action WHERE id = :id;

-- name: retention_holds | Return holds between two ids, oldest first; `due` is 1 for one that was released and whose prediction or session is gone.
SELECT h.id, h.account_id,
       CASE WHEN h.state = 'released'
            AND (SELECT p.id FROM prediction p WHERE p.id = h.id LIMIT 1) IS NULL
            AND (SELECT s.id FROM session s WHERE s.id = rtrim(rtrim(h.id, '0123456789'), ':') LIMIT 1) IS NULL
            THEN 1 ELSE 0 END AS due
FROM hold h WHERE h.id > :after AND h.id < :before ORDER BY h.id LIMIT :limit;

-- name: retention_holds_delete | Delete a released hold.
DELETE FROM hold WHERE id = :id AND state = 'released';

-- name: archive_predictions | Return all columns of predictions of `ids` (a JSON array) and of their parts at any depth.
{below :ids}
SELECT * FROM prediction WHERE {is_below id} ORDER BY id;

-- name: archive_media | Return the files of predictions of `ids` (a JSON array) and of their parts, without their bytes.
{below :ids}
SELECT name, account_id, prediction_id, kind, content_type, size, sha256, blob, created_at, expires_at
FROM media WHERE {is_below prediction_id} ORDER BY name;

-- name: archive_sessions | Return all columns of live sessions of `ids`, a JSON array.
SELECT * FROM session WHERE id {in :ids} ORDER BY id;

-- name: archive_audit | Return all columns of audit entries of `ids`, a JSON array.
SELECT * FROM audit WHERE id {in :ids} ORDER BY id;

-- name: archive_calls | Return all columns of gateway calls of `ids`, a JSON array.
SELECT * FROM relay_call WHERE id {in :ids} ORDER BY id;

-- name: archive_operators | Return all columns of what operators did of `ids`, a JSON array.
SELECT *, actor_id AS account_id FROM operator_action WHERE id {in :ids} ORDER BY id;

-- name: archive_charges_page | Return charges after a time and id, oldest first; `due` is 1 if the prediction or session is gone.
SELECT t.id, t.created_at,
       CASE WHEN (SELECT p.id FROM prediction p WHERE p.id = t.hold_id LIMIT 1) IS NULL
            AND (SELECT s.id FROM session s WHERE s.id = rtrim(rtrim(t.hold_id, '0123456789'), ':') LIMIT 1) IS NULL
            THEN 1 ELSE 0 END AS due
FROM transfer t
WHERE t.credit = 'revenue' AND t.hold_id IS NOT NULL
  AND (t.created_at, t.id) > (:after_at, :after_id) AND t.created_at < :before
ORDER BY t.created_at, t.id LIMIT :limit;

-- name: archive_charges | Return charges of `ids` (a JSON array) with their holds.
SELECT t.id, t.debit, t.credit, t.amount, t.hold_id, t.kind, t.description, t.request_id, t.charge, t.created_at,
       h.amount AS held, h.created_at AS held_at, h.key_id
FROM transfer t JOIN hold h ON h.id = t.hold_id
WHERE t.id {in :ids} ORDER BY t.created_at, t.id;

-- name: archive_charge_delete | Delete an archived charge.
DELETE FROM transfer WHERE id = :id;

-- name: archive_hold_delete | Delete the hold of an archived charge.
DELETE FROM hold WHERE id = :id AND state = 'captured';

-- name: closing_balances | Return the closing balances of accounts of `ids`, a JSON array.
SELECT account_id, balance, entries FROM closing_balance WHERE account_id {in :ids};

-- name: closing_balances_page | Return a page of all closing balances, ordered by account.
SELECT account_id, balance, entries FROM closing_balance WHERE account_id > :after ORDER BY account_id LIMIT :limit;

-- name: closing_entry | Return the closing balance of an account as an entry of its ledger, at the time of the last archived charge.
SELECT 'closing' AS id, COALESCE((
    SELECT s.until FROM archive_account a JOIN archive_segment s ON s.number = a.segment
    WHERE a.account_id = c.account_id AND s.kind = 'ledger' ORDER BY a.segment DESC LIMIT 1), 0) AS created_at,
    'archived' AS kind, 'Closing balance of archived charges (' || c.entries || ')' AS description, NULL AS request_id,
    NULL AS hold_id, NULL AS charge, c.balance AS amount
FROM closing_balance c WHERE c.account_id = :account_id;

-- name: archive_of_account | Return a page of the segments that have records of an account, oldest first.
SELECT s.number, s.kind, s.hash, s.blob FROM archive_account a JOIN archive_segment s ON s.number = a.segment
WHERE a.account_id = :account_id AND a.segment > :after AND s.blob IS NOT NULL ORDER BY a.segment LIMIT :limit;

-- name: closing_balance_set | Set the closing balance of an account.
INSERT INTO closing_balance (account_id, balance, entries) VALUES (:account_id, :balance, :entries)
ON CONFLICT (account_id) DO UPDATE SET balance = excluded.balance, entries = excluded.entries;

-- name: archive_head | Return the number and hash of the last segment of the archive.
SELECT number, hash FROM archive_segment ORDER BY number DESC LIMIT 1;

-- name: archive_open | Insert a segment whose file is about to be stored.
INSERT INTO archive_segment (number, kind, hash, staged, records, size, first_id, last_id, until, created_at)
VALUES (:number, :kind, :hash, :staged, :records, :size, :first_id, :last_id, :until, :now);

-- name: archive_seal | Make a segment with its stored file a part of the archive; return no row if another server removed it.
UPDATE archive_segment SET blob = staged, staged = NULL
WHERE number = :number AND staged = :staged AND blob IS NULL RETURNING number;

-- name: archive_account_insert | Note that a segment has records of an account.
INSERT INTO archive_account (account_id, segment) VALUES (:account_id, :segment);

-- name: archive_staged | Return segments with a file that must be deleted.
SELECT number, blob, staged FROM archive_segment WHERE staged IS NOT NULL ORDER BY number LIMIT :limit;

-- name: archive_discard | Delete a segment that was not sealed.
DELETE FROM archive_segment WHERE number = :number AND staged = :staged AND blob IS NULL;

-- name: archive_unstage | Note that the replaced file of a segment was deleted.
UPDATE archive_segment SET staged = NULL WHERE number = :number AND staged = :staged AND blob IS NOT NULL;

-- name: archive_erasing | Return a segment that has records of accounts to erase, with one of them.
SELECT s.number, s.blob, a.account_id
FROM archive_account a JOIN archive_segment s ON s.number = a.segment
WHERE a.is_erasing = 1 AND a.segment = (SELECT MIN(segment) FROM archive_account WHERE is_erasing = 1)
ORDER BY a.account_id LIMIT :limit;

-- name: archive_stage | Note the file that is about to replace the one of a segment; return no row if there is one already.
UPDATE archive_segment SET staged = :staged
WHERE number = :number AND blob = :blob AND staged IS NULL RETURNING number;

-- name: archive_replace | Replace the file of a segment by the staged one; the old one is to be deleted.
UPDATE archive_segment SET blob = staged, staged = blob, size = :size, erased = erased + :erased
WHERE number = :number AND staged = :staged AND blob = :blob RETURNING number;

-- name: archive_account_erased | Note that a segment has no more records of an account.
DELETE FROM archive_account WHERE account_id = :account_id AND segment = :segment;

-- name: archive_segments | Return a page of the segments of the archive, oldest first.
SELECT number, kind, hash, blob, records, size, first_id, last_id, until, erased, created_at
FROM archive_segment WHERE number > :after AND blob IS NOT NULL ORDER BY number LIMIT :limit;

-- name: archive_last_of_account | Return the last id of the newest segment of a kind that has records of an account.
SELECT s.last_id FROM archive_account a JOIN archive_segment s ON s.number = a.segment
WHERE a.account_id = :account_id AND s.kind = :kind AND s.blob IS NOT NULL
ORDER BY a.segment DESC LIMIT 1;

-- name: erase_archived | Mark an account's records in the archive, so that the sweep erases them.
UPDATE archive_account SET is_erasing = 1 WHERE account_id = :account_id;
