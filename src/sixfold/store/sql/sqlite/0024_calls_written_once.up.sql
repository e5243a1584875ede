-- Adds the description of a call to its hold, and writes calls once they ended.
-- A call is written once, when it has ended. Until then its hold tells what a crash has to: whose it is, and of
-- what, as a JSON object. A server of the version before writes its calls as it did, and sees these when they end.
-- The casts make both halves of the view the same to SQLite, which then reads a page of it from the indexes; the
-- index keeps it from looking through all that ever was held.
ALTER TABLE hold ADD COLUMN about TEXT;
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
SELECT id, account_id, CAST(about ->> 'key_id' AS TEXT), CAST(about ->> 'face' AS TEXT),
    CAST(about ->> 'model' AS TEXT), CAST(about ->> 'target' AS TEXT), CAST('running' AS TEXT),
    CAST(about ->> 'holder' AS TEXT), CAST(about ->> 'streamed' AS INTEGER),
    CAST(0 AS INTEGER), CAST(0 AS INTEGER), CAST(0 AS INTEGER), CAST(0 AS INTEGER), CAST('' AS TEXT), amount,
    CAST(0 AS INTEGER), CAST(0 AS INTEGER), CAST(0 AS INTEGER), CAST('' AS TEXT), CAST(NULL AS TEXT),
    CAST(NULL AS TEXT), CAST('' AS TEXT), created_at, CAST(NULL AS INTEGER)
FROM hold INDEXED BY hold_pending WHERE state = 'pending' AND about IS NOT NULL;
