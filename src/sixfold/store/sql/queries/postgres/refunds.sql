-- name: connections_sessions | Return the unexpired login sessions of `ids`, a JSON array of hexadecimal token hashes, that have `role`, with `suspended` also those of suspended and closed accounts; an owner's export continues when the account is closed.
SELECT encode(token_hash, 'hex') AS id FROM signin
WHERE token_hash = ANY (ARRAY(SELECT decode(json_array_elements_text(:ids::json), 'hex')))
  AND kind = 'session' AND expires_at > :now
  AND (:suspended = 1 OR NOT EXISTS (
      SELECT 1 FROM account a
      WHERE a.id IN (signin.account_id, signin.organization_id)
        AND (a.suspended_at IS NOT NULL OR (a.closing_at IS NOT NULL AND :role <> 'owner'))))
  AND NOT EXISTS (SELECT 1 FROM member m
                  WHERE m.account_id = signin.organization_id AND m.person_id = signin.account_id AND NOT {has_role m});
