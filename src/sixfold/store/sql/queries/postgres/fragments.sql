-- fragment: active_guardrail | The document of a guardrail, without its hook while the member who set it is suspended.
CASE WHEN EXISTS (SELECT 1 FROM member c JOIN account p ON p.id = c.person_id
                  WHERE c.id = row.member_id AND p.suspended_at IS NOT NULL)
    THEN (row.document::jsonb - 'hook')::text ELSE row.document END
