-- name: prediction_claim_shared | Lease the oldest queued predictions, skipping locked rows; limit free ones to each account's share.
WITH busy AS (
    SELECT account_id, COUNT(*) AS runs FROM prediction
    WHERE state IN ('starting', 'running', 'canceling') AND engine = :engine
      AND price = 0 AND COALESCE(list_price, 0) = 0
    GROUP BY account_id
), waiting AS (
    SELECT id, account_id, created_at, price > 0 OR COALESCE(list_price, 0) > 0 AS is_priced,
           ROW_NUMBER() OVER (PARTITION BY account_id, price > 0 OR COALESCE(list_price, 0) > 0
                              ORDER BY created_at, id) AS place
    FROM prediction
    WHERE state = 'queued' AND engine = :engine
      AND (CAST(:hardware AS TEXT) IS NULL OR COALESCE(hardware, '') = :hardware)
)
UPDATE prediction
SET state = :state, attempt = attempt + 1, holder = :holder, lease_until = :now + :lease,
    started_at = COALESCE(started_at, :now)
WHERE id IN (SELECT id FROM prediction
             WHERE state = 'queued' AND id IN (
             SELECT waiting.id FROM waiting LEFT JOIN busy USING (account_id)
             WHERE waiting.is_priced OR waiting.place + COALESCE(busy.runs, 0) <= :free_runs
             ORDER BY waiting.created_at, waiting.id LIMIT :limit)
             FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: prediction_sizes | Return the sums of the sizes in bytes of the predictions of `ids`.
SELECT SUM({stored_chars p}) OVER (ORDER BY e.place) AS total
FROM json_array_elements_text(:ids::json) WITH ORDINALITY AS e (id, place) JOIN prediction p ON p.id = e.id
ORDER BY e.place;
