-- name: spending | Return an account's spending less refunds since a point in time, by day, kind and description.
SELECT created_at / 86400000000 AS day, kind, description, CAST(SUM(amount) AS BIGINT) AS micros
FROM (SELECT created_at, kind, description, amount FROM transfer
      WHERE debit = :account_id AND created_at >= :since
      UNION ALL
      SELECT created_at, kind, description, -amount FROM transfer
      WHERE credit = :account_id AND created_at >= :since) AS entries
WHERE kind IN ('charge', 'chat', 'session', 'refund')
GROUP BY created_at / 86400000000, kind, description;

-- name: usage_report | Return an account's requests of a period by day, kind, model, key, counted budgets and, if requested, tag; the id of a refund is `refund:` and that of its hold.
SELECT day, kind, name, key_id, counted, tag, CAST(SUM(requests) AS BIGINT) AS requests, CAST(SUM(amount) AS BIGINT) AS micros,
    CAST(SUM(input_tokens) AS BIGINT) AS input_tokens, CAST(SUM(output_tokens) AS BIGINT) AS output_tokens,
    CAST(SUM(spent) AS BIGINT) AS spent
FROM (SELECT entries.created_at / 86400000000 AS day, kind, description AS name,
          COALESCE(relay_call.key_id, prediction.key_id, hold.key_id) AS key_id, hold.key_id AS counted, requests,
          entries.amount,
          CASE WHEN :tagged = 1 THEN COALESCE(relay_call.tag, '') ELSE '' END AS tag,
          requests * COALESCE(input_tokens, 0) AS input_tokens, requests * COALESCE(output_tokens, 0) AS output_tokens,
          requests * COALESCE(relay_call.upstream_cost, prediction.upstream_cost, 0) AS spent
      FROM (SELECT created_at, kind, description, hold_id AS paid, 1 AS requests, amount FROM transfer
            WHERE debit = :account_id AND created_at >= :since AND created_at < :until
            UNION ALL
            SELECT created_at, kind, description, substr(id, 8), 0, -amount FROM transfer
            WHERE credit = :account_id AND created_at >= :since AND created_at < :until) AS entries
      LEFT JOIN relay_call ON relay_call.id = entries.paid
      LEFT JOIN prediction ON prediction.id = entries.paid
      LEFT JOIN hold ON hold.id = entries.paid
      WHERE kind IN ('charge', 'chat', 'session', 'refund')
      UNION ALL
      SELECT created_at / 86400000000, 'chat', model, key_id, NULL, 1, 0,
          CASE WHEN :tagged = 1 THEN tag ELSE '' END, input_tokens, output_tokens, COALESCE(upstream_cost, 0)
      FROM relay_call
      WHERE account_id = :account_id AND id >= :first_call AND created_at >= :since AND created_at < :until
          AND cost = 0 AND state IN ('succeeded', 'left')
      UNION ALL
      SELECT created_at / 86400000000, 'charge', model, key_id, NULL, 1, 0, '', 0, 0, COALESCE(upstream_cost, 0) FROM prediction
      WHERE account_id = :account_id AND id >= :first_prediction AND created_at >= :since AND created_at < :until
          AND cost = 0 AND state = 'succeeded' AND parent_id IS NULL) AS used
GROUP BY day, kind, name, key_id, counted, tag
LIMIT :limit;

-- name: operator_usage | Return the requests of all accounts in a period by day and, if requested, account and model, with amounts and provider costs.
SELECT used.day, used.kind, used.name, used.account_id, COALESCE(account.email, '') AS email, CAST(SUM(requests) AS BIGINT) AS requests,
    CAST(SUM(amount) AS BIGINT) AS micros, CAST(SUM(input_tokens) AS BIGINT) AS input_tokens,
    CAST(SUM(output_tokens) AS BIGINT) AS output_tokens, CAST(SUM(spent) AS BIGINT) AS spent
FROM (SELECT entries.created_at / 86400000000 AS day, CASE WHEN :by_model = 1 THEN kind ELSE '' END AS kind,
          CASE WHEN :by_model = 1 THEN description ELSE '' END AS name,
          CASE WHEN :by_account = 1 THEN owner ELSE '' END AS account_id, requests, entries.amount,
          requests * COALESCE(input_tokens, 0) AS input_tokens, requests * COALESCE(output_tokens, 0) AS output_tokens,
          requests * COALESCE(relay_call.upstream_cost, prediction.upstream_cost, 0) AS spent
      FROM (SELECT created_at, kind, description, debit AS owner, hold_id AS paid, 1 AS requests, amount FROM transfer
            WHERE credit = 'revenue' AND created_at >= :since AND created_at < :until
            UNION ALL
            SELECT created_at, kind, description, credit, substr(id, 8), 0, -amount FROM transfer
            WHERE debit = 'revenue' AND created_at >= :since AND created_at < :until) AS entries
      LEFT JOIN relay_call ON relay_call.id = entries.paid
      LEFT JOIN prediction ON prediction.id = entries.paid
      WHERE kind IN ('charge', 'chat', 'session', 'refund')
      UNION ALL
      SELECT created_at / 86400000000, CASE WHEN :by_model = 1 THEN 'chat' ELSE '' END,
          CASE WHEN :by_model = 1 THEN model ELSE '' END, CASE WHEN :by_account = 1 THEN account_id ELSE '' END,
          1, 0, input_tokens, output_tokens, COALESCE(upstream_cost, 0)
      FROM relay_call
      WHERE id >= :first_call AND created_at >= :since AND created_at < :until AND cost = 0 AND state IN ('succeeded', 'left')
      UNION ALL
      SELECT created_at / 86400000000, CASE WHEN :by_model = 1 THEN 'charge' ELSE '' END,
          CASE WHEN :by_model = 1 THEN model ELSE '' END, CASE WHEN :by_account = 1 THEN account_id ELSE '' END,
          1, 0, 0, 0, COALESCE(upstream_cost, 0)
      FROM prediction
      WHERE id >= :first_prediction AND created_at >= :since AND created_at < :until AND cost = 0 AND state = 'succeeded'
          AND parent_id IS NULL) AS used
LEFT JOIN account ON account.id = used.account_id
GROUP BY used.day, used.kind, used.name, used.account_id, account.email
LIMIT :limit;
