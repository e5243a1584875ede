-- fragment: active_guardrail | The document of a guardrail, without the hook of a member who is no longer an admin or is suspended.
CASE WHEN {has_active_admin row} THEN row.document ELSE (row.document::jsonb - 'hook')::text END

-- fragment: stored_chars | The length of the texts that a prediction stores, in bytes, which are known without reading the texts.
OCTET_LENGTH(row.inputs) + OCTET_LENGTH(row.task) + COALESCE(OCTET_LENGTH(row.output), 0) + COALESCE(OCTET_LENGTH(row.logs), 0)
