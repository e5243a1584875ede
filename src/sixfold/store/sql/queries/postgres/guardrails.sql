-- name: hooks_end_member | Remove the hooks that a member of an organization set; what is masked stays.
UPDATE guardrail SET document = (document::jsonb - 'hook')::text, member_id = NULL, updated_at = :now
WHERE account_id = :account_id AND member_id = :member_id;
