-- fragment: active_guardrail | The document of a guardrail, without the hook of a member who is no longer an admin or is suspended.
CASE WHEN {has_active_admin row} THEN row.document ELSE (row.document::jsonb - 'hook')::text END
