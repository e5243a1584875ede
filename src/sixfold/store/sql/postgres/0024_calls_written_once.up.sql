-- Adds the description of a call to its hold, and writes calls once they ended.
-- A call is written once, when it has ended. Until then its hold tells what a crash has to: whose it is, and of
-- what, as a JSON object. A server of the version before writes its calls as it did, and sees these when they end.
ALTER TABLE hold ADD COLUMN about TEXT COLLATE "C";
CREATE VIEW relay_known (
    id, account_id, key_id, face, model, target, state, holder, streamed, attempts, input_tokens,
    cached_tokens, output_tokens, counted_by, held, cost, first_us, total_us, error, request, response, words,
    created_at, ended_at
) AS
SELECT id, account_id, key_id, face, model, target, state, holder, streamed, attempts, input_tokens,
    cached_tokens, output_tokens, counted_by, held, cost, first_us, total_us, error, request, response, words,
    created_at, ended_at
FROM relay_call
UNION ALL
SELECT id, account_id, about::json ->> 'key_id', about::json ->> 'face', about::json ->> 'model',
    about::json ->> 'target', 'running', about::json ->> 'holder', (about::json ->> 'streamed')::bigint,
    0, 0, 0, 0, '', amount, 0, 0, 0, '', NULL, NULL, '', created_at, NULL
FROM hold WHERE state = 'pending' AND about IS NOT NULL;
