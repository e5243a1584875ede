-- name: spending | Return an account's spending less refunds since a point in time, by day, kind and description.
SELECT created_at / 86400000000 AS day, kind, description, CAST(SUM(amount) AS BIGINT) AS micros
FROM (SELECT created_at, kind, description, amount FROM transfer
      WHERE debit = :account_id AND created_at >= :since
      UNION ALL
      SELECT created_at, kind, description, -amount FROM transfer
      WHERE credit = :account_id AND created_at >= :since) AS entries
WHERE kind IN ('charge', 'chat', 'session', 'refund')
GROUP BY created_at / 86400000000, kind, description;
