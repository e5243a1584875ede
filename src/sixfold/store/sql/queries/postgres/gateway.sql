-- name: gateway_call_page | Return a page of an account's gateway calls, newest first; each half of the union uses its own index.
SELECT id, key_id, face, model, target, state, streamed, attempts, input_tokens, cached_tokens, output_tokens,
       counted_by, held, cost, first_us, total_us, error, request, response, created_at, ended_at, charge
FROM (
    (SELECT id, key_id, face, model, target, state, streamed, attempts, input_tokens, cached_tokens, output_tokens,
            counted_by, held, cost, first_us, total_us, error, request, response, created_at, ended_at, charge
    FROM relay_call WHERE account_id = :account_id AND id < :before
      AND (:model = '' OR model = :model) AND (:state = '' OR state = :state)
      AND (:key_id = '' OR key_id = :key_id OR key_id IN (SELECT k.id FROM api_key k WHERE k.grant_id = :key_id))
      AND (:pattern = '%%' OR words LIKE :pattern ESCAPE '\')
    ORDER BY id DESC LIMIT :limit)
    UNION ALL
    (SELECT id, key_id, face, model, target, state, streamed, attempts, input_tokens, cached_tokens, output_tokens,
            counted_by, held, cost, first_us, total_us, error, request, response, created_at, ended_at, NULL
    FROM (SELECT id, about::json ->> 'key_id' AS key_id, about::json ->> 'face' AS face,
                 about::json ->> 'model' AS model, about::json ->> 'target' AS target, 'running' AS state,
                 (about::json ->> 'streamed')::bigint AS streamed, 0::bigint AS attempts, 0::bigint AS input_tokens,
                 0::bigint AS cached_tokens, 0::bigint AS output_tokens, '' AS counted_by, amount AS held,
                 0::bigint AS cost, 0::bigint AS first_us, 0::bigint AS total_us, '' AS error, NULL AS request,
                 NULL AS response, '' AS words, created_at, NULL::bigint AS ended_at
          FROM hold WHERE account_id = :account_id AND state = 'pending' AND about IS NOT NULL) AS running
    WHERE id < :before
      AND (:model = '' OR model = :model) AND (:state = '' OR state = :state)
      AND (:key_id = '' OR key_id = :key_id OR key_id IN (SELECT k.id FROM api_key k WHERE k.grant_id = :key_id))
      AND words LIKE :pattern ESCAPE '\'
    ORDER BY id DESC LIMIT :limit)
) AS calls
ORDER BY id DESC LIMIT :limit;
