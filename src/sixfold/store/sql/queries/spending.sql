-- name: spending | What an account paid since a moment, less what it got back, by day and by what it was for.
SELECT created_at / 86400000000 AS day, kind, description,
       CAST(SUM(CASE WHEN debit = :account_id THEN amount ELSE -amount END) AS BIGINT) AS micros
FROM transfer
WHERE (debit = :account_id OR credit = :account_id) AND created_at >= :since
  AND kind IN ('charge', 'chat', 'session', 'refund')
GROUP BY created_at / 86400000000, kind, description;
