-- name: connections_keys | Return the keys of `ids` (a JSON array) that may keep a connection open that requires `role`, with `suspended` also those of suspended accounts.
SELECT k.id FROM api_key k JOIN account a ON a.id = k.account_id LEFT JOIN member m ON m.id = k.member_id
WHERE k.id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) AND a.closing_at IS NULL
  AND (:suspended = 1 OR (
      a.suspended_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM account u WHERE u.id IN (m.person_id, k.creator_id) AND u.suspended_at IS NOT NULL)))
  AND {has_role m}
  AND ((k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now))
       OR EXISTS (SELECT 1 FROM oauth_grant g
                  WHERE g.id = k.grant_id AND g.ended_at IS NULL AND g.expires_at > :now));

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

-- name: connections_logins | Return the unexpired login sessions of `ids`, a JSON array of their own ids, with `suspended` also those of suspended and closed accounts.
SELECT id FROM signin
WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) AND kind = 'session' AND expires_at > :now
  AND (:suspended = 1 OR NOT EXISTS (
      SELECT 1 FROM account a
      WHERE a.id IN (signin.account_id, signin.organization_id)
        AND (a.suspended_at IS NOT NULL OR a.closing_at IS NOT NULL)));

-- name: connections_folders | Return the shares of folders of `ids` (a JSON array) that have not ended.
SELECT f.id FROM shared_folder f JOIN account a ON a.id = f.account_id
WHERE f.id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)))
  AND a.closing_at IS NULL AND a.suspended_at IS NULL
  AND {has_active_admin f} AND {has_valid_credential f} AND {has_valid_key f};
