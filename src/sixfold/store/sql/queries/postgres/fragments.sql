-- fragment: active_guardrail | The document of a guardrail, without the hook of a member who is no longer an admin or is suspended.
CASE WHEN row.member_id IS NOT NULL
          AND NOT EXISTS (SELECT 1 FROM member c JOIN account p ON p.id = c.person_id
                          WHERE c.id = row.member_id AND c.role <> 'member' AND p.suspended_at IS NULL)
    THEN (row.document::jsonb - 'hook')::text ELSE row.document END
