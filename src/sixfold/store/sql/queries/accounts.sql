-- name: account_insert | Insert an account with a zero balance; return no row if the email is taken.
INSERT INTO account (id, kind, email, can_go_negative, author_id, created_at)
VALUES (:id, :kind, :email, :can_go_negative, :author_id, :now)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: account_by_id | Return an account by its id.
SELECT * FROM account WHERE id = :id;

-- name: account_by_email | Return an account by its email address.
SELECT * FROM account WHERE email = :email;

-- name: account_operator | Return the operator's account, the oldest one of that kind.
SELECT * FROM account WHERE kind = 'operator' ORDER BY created_at, id LIMIT 1;

-- name: account_people | Return all accounts except system accounts and erased ones, oldest first.
SELECT * FROM account WHERE kind <> 'system' AND email IS NOT NULL ORDER BY created_at, id;

-- name: webhook_secret | Return an account's webhook secret, encrypted or still in plain text, unless the account is erased.
SELECT webhook_sealed, webhook_secret FROM account WHERE id = :id AND email IS NOT NULL;

-- name: webhook_secret_first | Set an account's first encrypted webhook secret; return no row if it already has a secret.
UPDATE account SET webhook_sealed = :sealed
WHERE id = :id AND webhook_sealed IS NULL AND webhook_secret IS NULL RETURNING id;

-- name: webhook_secret_replace | Replace the webhook secret of an account, unless it is erased.
UPDATE account SET webhook_sealed = :sealed, webhook_secret = NULL WHERE id = :id AND email IS NOT NULL RETURNING id;

-- name: webhook_secrets_open | Return accounts whose webhook secret is still stored in plain text, at most a limit.
SELECT id, webhook_secret FROM account WHERE webhook_secret IS NOT NULL ORDER BY id LIMIT :limit;

-- name: webhook_secret_seal | Replace a plain-text webhook secret with its encrypted form.
UPDATE account SET webhook_sealed = :sealed, webhook_secret = NULL
WHERE id = :id AND webhook_secret = :opened RETURNING id;

-- name: account_set_password | Update the password hash of an account.
UPDATE account SET password_hash = :password_hash WHERE id = :id RETURNING id;

-- name: upload_folder_of | Return the name of an account's upload folder.
SELECT name FROM upload_folder WHERE account_id = :account_id AND keyless = :keyless;

-- name: credential_folder_of | Return the name of the upload folder of a key without `account.read` or of an OAuth grant.
SELECT name FROM credential_folder WHERE account_id = :account_id AND credential_id = :credential_id;

-- name: upload_folder_insert | Insert an upload folder, unless the account already has one.
INSERT INTO upload_folder (name, account_id, keyless) VALUES (:name, :account_id, :keyless)
ON CONFLICT DO NOTHING;

-- name: credential_folder_insert | Insert the upload folder of a key without `account.read` or of an OAuth grant, unless it exists.
INSERT INTO credential_folder (name, account_id, credential_id) VALUES (:name, :account_id, :credential_id)
ON CONFLICT DO NOTHING;

-- name: upload_folder | Return the account and credential that own an upload folder, by its name.
SELECT f.account_id, f.keyless, '' AS credential_id, a.kind, a.suspended_at, a.closing_at
FROM upload_folder f JOIN account a ON a.id = f.account_id
WHERE f.name = :name
UNION ALL
SELECT f.account_id, 0, f.credential_id, a.kind, a.suspended_at, a.closing_at
FROM credential_folder f JOIN account a ON a.id = f.account_id
WHERE f.name = :name;

-- name: key_insert | Insert an API key; only its hash is stored.
INSERT INTO api_key (id, account_id, hash, hint, scope, rights, origin, created_at, expires_at, grant_id, member_id, team_id, name,
                     parent_id, rates_id, creator_id)
VALUES (:id, :account_id, :hash, :hint, :scope, :rights, :origin, :now, :expires_at, :grant_id, :member_id, :team_id, :name,
        :parent_id, :rates_id, (SELECT m.person_id FROM member m WHERE m.id = :creator_member_id));

-- name: key_copy | Insert a key with the rights, limits and name of an active key of the account or, if given, of its member; return no row without one.
INSERT INTO api_key (id, account_id, hash, hint, scope, rights, origin, created_at, expires_at, member_id, team_id, name,
                     budget_id, parent_id, rates_id)
SELECT :new_id, k.account_id, :hash, :hint, k.scope, k.rights, k.origin, :now, k.expires_at, k.member_id, k.team_id, k.name,
    COALESCE(k.budget_id, k.id), k.parent_id, k.rates_id
FROM api_key k
WHERE k.id = :id AND k.account_id = :account_id AND COALESCE(k.member_id, '') = :member_id AND k.grant_id IS NULL
  AND k.hint <> '' AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now)
RETURNING id;

-- name: key_guardrail_copy | Give a key the guardrail of another one.
INSERT INTO guardrail (account_id, key_id, document, member_id, updated_at)
SELECT g.account_id, :new_id, g.document, g.member_id, :now FROM guardrail g WHERE g.account_id = :account_id AND g.key_id = :id;

-- name: key_alerts_move | Let the cost alerts of a key count another one.
UPDATE cost_alert SET key_id = :new_id WHERE account_id = :account_id AND key_id = :id;

-- name: key_expire | Let a key expire after a number of µs, unless it does so earlier.
UPDATE api_key SET expires_at = :now + :life WHERE id = :id AND (expires_at IS NULL OR expires_at > :now + :life);

-- name: keys_end_derived | Revoke the keys whose parent is revoked, and let them expire with their parent; return those that changed.
UPDATE api_key AS k
SET revoked_at = (SELECT CASE WHEN p.revoked_at IS NOT NULL THEN CAST(:now AS BIGINT) END FROM api_key p WHERE p.id = k.parent_id),
    expires_at = (SELECT CASE WHEN p.expires_at < COALESCE(k.expires_at, p.expires_at + 1) THEN p.expires_at
                              ELSE k.expires_at END FROM api_key p WHERE p.id = k.parent_id)
WHERE k.parent_id IS NOT NULL AND k.revoked_at IS NULL
  AND EXISTS (SELECT 1 FROM api_key p WHERE p.id = k.parent_id
              AND (p.revoked_at IS NOT NULL OR p.expires_at < COALESCE(k.expires_at, p.expires_at + 1)))
RETURNING id, account_id, revoked_at;

-- name: key_rename | Change the name of an active key of an account; return no row without one.
UPDATE api_key SET name = :name
WHERE id = :id AND account_id = :account_id AND revoked_at IS NULL AND hint <> '' RETURNING id;

-- name: keys_used | Set the time of the last use of the keys of `ids`, a JSON array.
UPDATE api_key SET used_at = :now WHERE id {in :ids};

-- name: key_by_hash | Return an active key and its account by the key's hash, unless the account is being deleted.
{known_keys}
WHERE k.hash = :hash AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now)
  AND a.closing_at IS NULL AND (k.member_id IS NULL OR m.id IS NOT NULL);

-- name: key_by_id | Return a key and its account by the key's id, including revoked and expired keys.
{known_keys}
WHERE k.id = :id;

-- name: keys_of | Return the newest keys of an account, except those without a secret, which stand for members.
SELECT k.id, k.hint, k.scope, k.rights, k.origin, a.kind, k.created_at, k.expires_at, k.revoked_at, k.grant_id,
    k.member_id, k.team_id, k.name, k.used_at, COALESCE(k.budget_id, k.id) AS budget_id,
    CASE WHEN k.rights IS NULL THEN (SELECT g.scopes FROM oauth_grant g WHERE g.key_id = k.id) END AS program
FROM api_key k JOIN account a ON a.id = k.account_id
WHERE k.account_id = :account_id AND k.hint <> ''
ORDER BY k.created_at DESC, k.id DESC LIMIT :limit;

-- name: keys_live | Return the newest keys of an account, except revoked ones, those of OAuth clients and those without a secret.
SELECT k.id, k.hint, k.scope, k.rights, k.origin, a.kind, k.created_at, k.expires_at, k.revoked_at, k.grant_id,
    k.member_id, k.team_id, k.name, k.used_at, COALESCE(k.budget_id, k.id) AS budget_id, NULL AS program
FROM api_key k JOIN account a ON a.id = k.account_id
WHERE k.account_id = :account_id AND k.hint <> '' AND k.revoked_at IS NULL AND k.grant_id IS NULL
ORDER BY k.created_at DESC, k.id DESC LIMIT :limit;

-- name: key_listed | Return a key of an account by its id, unless it has no secret.
SELECT id, member_id FROM api_key WHERE id = :id AND account_id = :account_id AND hint <> '';

-- name: key_revoke | Revoke a key; return no row if it is unknown or already revoked.
UPDATE api_key SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL RETURNING id, account_id;

-- name: keys_revoke | Revoke all active keys of an account, also those of its teams, except those of its members.
UPDATE api_key SET revoked_at = :now
WHERE account_id = :account_id AND member_id IS NULL AND revoked_at IS NULL RETURNING id;

-- name: access_keys_revoke | Revoke all keys of all accounts, except those that stand for a member and have no secret.
UPDATE api_key SET revoked_at = :now WHERE revoked_at IS NULL AND hint <> '' RETURNING id;

-- name: access_grants_end | End all OAuth grants.
UPDATE oauth_grant SET ended_at = :now WHERE ended_at IS NULL RETURNING id;

-- name: access_sign_ins_end | Delete all login sessions and links.
DELETE FROM signin RETURNING account_id;

-- name: access_invitations_end | Delete all invitations.
DELETE FROM invitation RETURNING id;

-- name: access_shares_end | Delete all shares.
DELETE FROM share RETURNING id;

-- name: access_folders_end | Delete all shares of folders.
DELETE FROM shared_folder RETURNING id;

-- name: login_session_insert | Insert a one-time login link or a login session; only the token's hash is stored.
INSERT INTO signin (token_hash, account_id, kind, id, way, agent, created_at, expires_at)
VALUES (:token_hash, :account_id, :kind, :id, :way, :agent, COALESCE(CAST(:authenticated_at AS BIGINT), :now), :expires_at);

-- name: login_session_act_for | Let a login session act for an organization of its person, or for its own account; return no row if it may not.
UPDATE signin SET organization_id = CASE WHEN :organization_id = account_id THEN NULL ELSE :organization_id END
WHERE token_hash = :token_hash AND kind = 'session' AND expires_at > :now
  AND (:organization_id = account_id OR EXISTS (
      SELECT 1 FROM member m JOIN account a ON a.id = m.account_id
      WHERE m.account_id = :organization_id AND m.person_id = signin.account_id
        AND (a.closing_at IS NULL OR m.role = 'owner')))
RETURNING account_id;

-- name: login_session_rotate | Give a login session a new token, so that connections opened with the old one end.
UPDATE signin SET token_hash = :new_hash WHERE token_hash = :token_hash AND kind = 'session' AND expires_at > :now
RETURNING account_id;

-- name: login_session_take | Delete an unexpired one-time login link and return its account.
DELETE FROM signin WHERE token_hash = :token_hash AND kind = 'link' AND expires_at > :now
RETURNING account_id;

-- name: login_session_session | Return the account that an unexpired login session acts for, and its role there.
SELECT a.*, s.id AS login_id, s.created_at AS signed_in_at, s.account_id AS person_id, s.organization_id, p.email AS person_email,
    p.suspended_at AS person_suspended, p.closing_at AS person_closing,
    CASE WHEN s.created_at > :now - :fresh_us THEN 1 ELSE 0 END AS is_fresh,
    m.id AS member_id, m.role, m.key_id AS member_key, m.team_id, m.budget_day AS member_day,
    m.budget_month AS member_month, t.budget_day AS team_day, t.budget_month AS team_month,
    (SELECT {active_guardrail g} FROM guardrail g WHERE g.account_id = a.id AND g.key_id IN (COALESCE(m.key_id, ''), '')
     ORDER BY g.key_id DESC LIMIT 1) AS guardrail,
    (SELECT c.days FROM content_logging c WHERE c.account_id = a.id) AS content_days
FROM signin s JOIN account p ON p.id = s.account_id
JOIN account a ON a.id = COALESCE(s.organization_id, s.account_id)
LEFT JOIN member m ON m.account_id = s.organization_id AND m.person_id = s.account_id
LEFT JOIN team t ON t.id = m.team_id
WHERE s.token_hash = :token_hash AND s.kind = 'session' AND s.expires_at > :now
  AND (s.organization_id IS NULL OR (m.id IS NOT NULL AND (a.closing_at IS NULL OR m.role = 'owner')));

-- name: login_session_end | Delete a login session or link by its token hash.
DELETE FROM signin WHERE token_hash = :token_hash RETURNING account_id;

-- name: login_session_sweep | Delete expired login sessions and links.
DELETE FROM signin WHERE expires_at <= :now RETURNING account_id;

-- name: idempotency_insert | Insert a claim on an Idempotency-Key; return no row if the key is in use.
INSERT INTO idempotency (id, body_hash, boot, created_at) VALUES (:id, :body_hash, :boot, :now)
ON CONFLICT DO NOTHING
RETURNING created_at;

-- name: idempotency_get | Return the record of an Idempotency-Key.
SELECT * FROM idempotency WHERE id = :id;

-- name: idempotency_adopt | Transfer an unfinished idempotency claim from a stopped server to this one.
UPDATE idempotency SET boot = :boot
WHERE id = :id AND boot = :old_boot AND status IS NULL AND NOT server_lives(:old_boot) RETURNING id;

-- name: idempotency_abandon | Let any server adopt an unfinished claim.
UPDATE idempotency SET boot = ''
WHERE id = :id AND boot = :boot AND status IS NULL
  AND (CAST(:claimed_at AS BIGINT) = 0 OR created_at = CAST(:claimed_at AS BIGINT));

-- name: idempotency_finish | Store the response of an idempotent request for replay.
UPDATE idempotency SET status = :status, headers = :headers, body = :body, account_id = :account_id, size = :size
WHERE id = :id
  AND (CAST(:claimed_at AS BIGINT) = 0 OR (created_at = CAST(:claimed_at AS BIGINT) AND boot = :boot AND status IS NULL));

-- name: idempotency_usage | Return the bytes of the stored responses of an account.
SELECT reply_bytes FROM storage_usage WHERE account_id = :account_id;

-- name: idempotency_forget | Delete an idempotency record so that its key can be used again.
DELETE FROM idempotency
WHERE id = :id
  AND (CAST(:claimed_at AS BIGINT) = 0 OR (created_at = CAST(:claimed_at AS BIGINT) AND boot = :boot AND status IS NULL));

-- name: idempotency_sweep | Delete idempotency records created before `before`.
DELETE FROM idempotency WHERE created_at < :before RETURNING id;
