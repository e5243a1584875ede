-- fragment: available | The amount that an account can spend; an operator's account can be overdrawn up to `MAX_BALANCE` of `ledger.py`.
row.posted - row.held
    + CASE WHEN row.can_go_negative = 1 AND row.kind <> 'customer' THEN 1000000000000000000 ELSE 0 END

-- fragment: has_valid_credential | Whether the account, or the key or program that made a row, still has access.
(row.credential_id = ''
    OR EXISTS (SELECT 1 FROM api_key k WHERE k.id = row.credential_id AND k.revoked_at IS NULL
      AND (k.expires_at IS NULL OR k.expires_at > :now))
    OR EXISTS (SELECT 1 FROM oauth_grant g WHERE g.id = row.credential_id AND g.ended_at IS NULL
      AND g.expires_at > :now))

-- fragment: has_valid_key | Whether the key that created a row, if any, is valid.
(row.key_id IS NULL
    OR EXISTS (SELECT 1 FROM api_key k WHERE k.id = row.key_id AND k.revoked_at IS NULL
      AND (k.expires_at IS NULL OR k.expires_at > :now)))

-- fragment: has_active_member | Whether the member who made a row, if any, is still a member and not suspended.
(row.member_id IS NULL
    OR EXISTS (SELECT 1 FROM member c JOIN account p ON p.id = c.person_id
               WHERE c.id = row.member_id AND p.suspended_at IS NULL))

-- fragment: has_active_admin | Whether the member who made a row, if any, is still an admin and not suspended.
(row.member_id IS NULL
    OR EXISTS (SELECT 1 FROM member c JOIN account p ON p.id = c.person_id
               WHERE c.id = row.member_id AND c.role <> 'member' AND p.suspended_at IS NULL))

-- fragment: has_active_creator | Whether the user who created the key of a row, if any, is not suspended.
NOT EXISTS (SELECT 1 FROM api_key k JOIN account u ON u.id = k.creator_id
            WHERE k.id = row.key_id AND u.suspended_at IS NOT NULL)

-- fragment: has_role | Whether a member has the role `role` or a higher one; an account without this member has all.
(row.id IS NULL OR :role = 'member' OR row.role = :role OR (row.role = 'owner' AND :role = 'admin'))

-- fragment: active_guardrail | The document of a guardrail, without the hook of a member who is no longer an admin or is suspended.
CASE WHEN {has_active_admin row} THEN row.document ELSE {without_hook row.document} END

-- fragment: is_paid_outcome | Whether the run that stored a node output, and all runs whose outputs it used, have succeeded.
EXISTS (SELECT 1 FROM prediction p WHERE p.id = row.prediction_id AND p.state = 'succeeded')
  AND NOT EXISTS (SELECT 1 FROM graph_source s LEFT JOIN prediction p ON p.id = s.source_id
                  WHERE s.account_id = row.account_id AND s.prediction_id = row.prediction_id
                    AND (p.state IS NULL OR p.state <> 'succeeded'))

-- fragment: stored_chars | The length of the texts that a prediction stores, in characters.
LENGTH(row.inputs) + LENGTH(row.task) + COALESCE(LENGTH(row.output), 0) + COALESCE(LENGTH(row.logs), 0)

-- fragment: in | Whether a value is one of the texts of a JSON array.
IN (SELECT value FROM json_each(:argument))

-- fragment: version_of | Whether an id is that of the chat `root` of an account or of one of its versions; `OR` would read all chats.
IN (SELECT :argument UNION ALL
    SELECT v.id FROM relay_conversation v WHERE v.account_id = :account_id AND v.root <> '' AND v.root = :argument)

-- fragment: texts | The texts of a JSON array, as rows with a `value`.
json_each(:argument)

-- fragment: json | A column with JSON, for `->>`.
:argument

-- fragment: day | The UTC day of a time in microseconds.
strftime('%Y-%m-%d', :argument / 1000000, 'unixepoch')

-- fragment: month | The UTC month of a time in microseconds.
strftime('%Y-%m', :argument / 1000000, 'unixepoch')

-- fragment: skip_locked | A lock of the selected rows of a table, which leaves out those that another server has locked.

-- fragment: without_hook | The document of a guardrail without its hook.
json_remove(:argument, '$.hook')

-- fragment: items | The objects or arrays of a JSON array, as rows with a `value`.
json_each(:argument)

-- fragment: below | The ids of a JSON array of predictions and of their parts at any depth, as `below`.
WITH RECURSIVE below (id) AS (
    SELECT value FROM json_each(:argument)
    UNION ALL SELECT c.id FROM prediction c JOIN below b ON c.parent_id = b.id)

-- fragment: is_below | Whether an id is in `below`.
:argument IN (SELECT id FROM below)

-- fragment: page_of | The page of a row, as `p`.
JOIN page p ON p.id = row.page_id

-- fragment: position | The position of a text in another one, or 0.
INSTR(:argument)

-- fragment: has_phrase | Whether a text has the words `phrase` in sequence, without regard to punctuation.
INSTR(' ' || REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(LOWER(:argument), '.', ''), ',', ''), '?', ''), '!', ''), ':', ''), '"', ''), char(10), ' ') || ' ', ' ' || :phrase || ' ') > 0

-- fragment: in_scope | Whether a page is in one of the collections of `scope`, between `sep`; an empty scope has all pages.
(:scope = '' OR EXISTS (SELECT 1 FROM page_collection c WHERE c.page_id = :argument
    AND REPLACE(:scope, :sep || c.collection || :sep, '') <> :scope))

-- fragment: known_keys | The keys with their accounts, members, teams and guardrails.
SELECT k.id AS key_id, k.budget_id, k.rates_id, k.grant_id, k.scope, k.rights, k.origin, a.id AS account_id, a.kind, a.email,
    (SELECT {active_guardrail g} FROM guardrail g WHERE g.account_id = a.id AND g.key_id IN (k.id, '')
     ORDER BY g.key_id DESC LIMIT 1) AS guardrail,
    (SELECT c.days FROM content_logging c WHERE c.account_id = a.id) AS content_days,
    CASE WHEN a.kind = 'customer' AND a.posted - a.held < 0 THEN 1 ELSE 0 END AS below_zero,
    COALESCE(a.suspended_at, p.suspended_at,
             (SELECT u.suspended_at FROM account u WHERE u.id = k.creator_id)) AS suspended_at,
    CASE WHEN k.rights IS NULL THEN (SELECT g.scopes FROM oauth_grant g WHERE g.key_id = k.id) END AS program,
    k.member_id, k.team_id, m.role, a.budget_day, a.budget_month, a.operator_day, a.operator_month, m.budget_day AS member_day,
    m.budget_month AS member_month, t.budget_day AS team_day, t.budget_month AS team_month
FROM api_key k JOIN account a ON a.id = k.account_id
LEFT JOIN member m ON m.id = k.member_id LEFT JOIN account p ON p.id = m.person_id
LEFT JOIN team t ON t.id = k.team_id

-- fragment: response_chain | A response and its predecessors, at most `links` and up to the size `most`, as `chain`.
WITH RECURSIVE chain (id, previous, size, depth) AS (
    SELECT id, previous, size, 1 FROM relay_response WHERE account_id = :account_id AND id = :id
      AND (:credential_id = '' OR credential_id = :credential_id)
    UNION ALL
    SELECT r.id, r.previous, c.size + r.size, c.depth + 1
    FROM chain c JOIN relay_response r ON r.account_id = :account_id AND r.id = c.previous
    WHERE c.depth < :links AND c.size <= :most AND (:credential_id = '' OR r.credential_id = :credential_id)
)

-- fragment: call_insert | The insertion of a finished gateway call.
INSERT INTO relay_call (id, account_id, key_id, face, model, target, state, holder, streamed, attempts,
    input_tokens, cached_tokens, output_tokens, counted_by, held, cost, first_us, total_us, error, request,
    response, words, charge, tag, upstream_cost, shared, created_at, ended_at)
VALUES (:id, :account_id, :key_id, :face, :model, :target, :state, :holder, :streamed, :attempts,
    :input_tokens, :cached_tokens, :output_tokens, :counted_by, :held, :cost, :first_us, :total_us, :error,
    :request, :response, :words, :charge, :tag, :upstream_cost, :shared,
    COALESCE(NULLIF(:held_at, 0), :now - :total_us), :now)

-- fragment: counted_batches | The batches with the counts of their lines that have ended.
SELECT b.*, CAST(:now AS BIGINT) AS now,
       (SELECT COUNT(*) FROM batch_line l WHERE l.batch_id = b.id AND l.status < 300) AS lines_succeeded,
       (SELECT COUNT(*) FROM batch_line l WHERE l.batch_id = b.id AND l.status >= 300) AS lines_failed
FROM batch b

-- fragment: filterable_predictions | The fields of predictions by which the history is filtered; with `texts`, also the beginning of the inputs.
SELECT id, parent_id, model, state, meter, output_kind, created_at,
       CASE WHEN :texts = 1 AND withheld = 0 THEN substr(inputs, 1, 4000) ELSE '' END AS inputs
FROM prediction
