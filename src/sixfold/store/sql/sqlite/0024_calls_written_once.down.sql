INSERT INTO relay_call (id, account_id, key_id, face, model, target, state, holder, streamed, attempts, input_tokens,
    cached_tokens, output_tokens, counted_by, held, cost, first_us, total_us, error, request, response, words,
    created_at, ended_at)
SELECT id, account_id, about ->> 'key_id', about ->> 'face', about ->> 'model',
    about ->> 'target', 'running', about ->> 'holder', about ->> 'streamed',
    0, 0, 0, 0, '', amount, 0, 0, 0, '', NULL, NULL, '', created_at, NULL
FROM hold WHERE state = 'pending' AND about IS NOT NULL;
DROP VIEW relay_known;
ALTER TABLE hold DROP COLUMN about;
