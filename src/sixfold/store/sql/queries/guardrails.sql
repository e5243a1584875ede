-- name: guardrail_set | Insert or replace the guardrail of an account or a key.
INSERT INTO guardrail (account_id, key_id, document, member_id, updated_at)
VALUES (:account_id, :key_id, :document, :member_id, :now)
ON CONFLICT (account_id, key_id) DO UPDATE SET document = excluded.document, member_id = excluded.member_id,
    updated_at = excluded.updated_at;

-- name: guardrail_delete | Delete the guardrail of an account or a key; return no row if there is none.
DELETE FROM guardrail WHERE account_id = :account_id AND key_id = :key_id RETURNING key_id;

-- name: guardrail_get | Return the guardrail of an account or a key, without the hook of a suspended member.
SELECT {active_guardrail g} AS document FROM guardrail g WHERE g.account_id = :account_id AND g.key_id = :key_id;

-- name: guardrail_stored | Return the guardrail of an account or a key as it was set, and the member who set its hook.
SELECT document, member_id FROM guardrail WHERE account_id = :account_id AND key_id = :key_id;

-- name: guardrail_keys | Return the first keys of an account that have their own guardrail.
SELECT key_id FROM guardrail WHERE account_id = :account_id AND key_id > '' ORDER BY key_id LIMIT :limit;

-- name: guardrails_of | Return the guardrails of an account and of its keys.
SELECT key_id, document, member_id, updated_at FROM guardrail WHERE account_id = :account_id ORDER BY key_id;

-- name: hooks_end_member | Remove the hooks that a member of an organization set; what is masked stays.
UPDATE guardrail SET document = {without_hook document}, member_id = NULL, updated_at = :now
WHERE account_id = :account_id AND member_id = :member_id;

-- name: erase_guardrails | Delete an account's guardrails.
DELETE FROM guardrail WHERE account_id = :account_id;
