-- name: account_insert | A new account with an empty balance; nothing when the email is taken.
INSERT INTO account (id, kind, email, can_go_negative, author_id, created_at)
VALUES (:id, :kind, :email, :can_go_negative, :author_id, :now)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: account_by_id | One account.
SELECT * FROM account WHERE id = :id;

-- name: account_by_email | One account by its address.
SELECT * FROM account WHERE email = :email;

-- name: account_operator | The operator's account: the first that was made on this machine.
SELECT * FROM account WHERE kind = 'operator' ORDER BY created_at, id LIMIT 1;

-- name: account_people | Every account that belongs to a person.
SELECT * FROM account WHERE kind <> 'system' AND email IS NOT NULL ORDER BY created_at, id;

-- name: webhook_secret | The secret of an account that is not erased: sealed, or as the version before left it.
SELECT webhook_sealed, webhook_secret FROM account WHERE id = :id AND email IS NOT NULL;

-- name: webhook_secret_first | The first secret of an account; nothing where it has one.
UPDATE account SET webhook_sealed = :sealed
WHERE id = :id AND webhook_sealed IS NULL AND webhook_secret IS NULL RETURNING id;

-- name: webhook_secrets_open | Some accounts whose secret is not sealed.
SELECT id, webhook_secret FROM account WHERE webhook_secret IS NOT NULL ORDER BY id LIMIT :limit;

-- name: webhook_secret_seal | Seal a secret in the place of the open one.
UPDATE account SET webhook_sealed = :sealed, webhook_secret = NULL
WHERE id = :id AND webhook_secret = :opened RETURNING id;

-- name: account_set_password | Replace a password's hash.
UPDATE account SET password_hash = :password_hash WHERE id = :id RETURNING id;

-- name: upload_folder_of | The name of an account's folder for uploads.
SELECT name FROM upload_folder WHERE account_id = :account_id AND keyless = :keyless;

-- name: credential_folder_of | The name of the folder of a key without account.read, or of a grant.
SELECT name FROM credential_folder WHERE account_id = :account_id AND credential_id = :credential_id;

-- name: upload_folder_insert | A folder for uploads; nothing where the account has one.
INSERT INTO upload_folder (name, account_id, keyless) VALUES (:name, :account_id, :keyless)
ON CONFLICT DO NOTHING;

-- name: credential_folder_insert | The same for a key without account.read, or a grant.
INSERT INTO credential_folder (name, account_id, credential_id) VALUES (:name, :account_id, :credential_id)
ON CONFLICT DO NOTHING;

-- name: upload_folder | Whose folder a name stands for.
SELECT f.account_id, f.keyless, '' AS credential_id, a.kind FROM upload_folder f JOIN account a ON a.id = f.account_id
WHERE f.name = :name
UNION ALL
SELECT f.account_id, 0, f.credential_id, a.kind FROM credential_folder f JOIN account a ON a.id = f.account_id
WHERE f.name = :name;

-- name: key_insert | A new key; only its hash is kept.
INSERT INTO api_key (id, account_id, hash, hint, scope, rights, origin, created_at, expires_at, grant_id)
VALUES (:id, :account_id, :hash, :hint, :scope, :rights, :origin, :now, :expires_at, :grant_id);

-- name: key_by_hash | A key that is neither revoked nor expired, with its account, which is not being closed.
SELECT k.id AS key_id, k.grant_id, k.scope, k.rights, k.origin, a.id AS account_id, a.kind, a.email,
    CASE WHEN a.kind = 'customer' AND a.posted - a.held < 0 THEN 1 ELSE 0 END AS below_zero,
    CASE WHEN k.rights IS NULL THEN (SELECT g.scopes FROM oauth_grant g WHERE g.key_id = k.id) END AS program
FROM api_key k JOIN account a ON a.id = k.account_id
WHERE k.hash = :hash AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now)
  AND a.closing_at IS NULL;

-- name: key_by_id | A key with its account, also where it has ended.
SELECT k.id AS key_id, k.grant_id, k.scope, k.rights, k.origin, a.id AS account_id, a.kind, a.email,
    CASE WHEN a.kind = 'customer' AND a.posted - a.held < 0 THEN 1 ELSE 0 END AS below_zero,
    CASE WHEN k.rights IS NULL THEN (SELECT g.scopes FROM oauth_grant g WHERE g.key_id = k.id) END AS program
FROM api_key k JOIN account a ON a.id = k.account_id WHERE k.id = :id;

-- name: keys_of | Every key of an account, newest first.
SELECT k.id, k.hint, k.scope, k.rights, k.origin, a.kind, k.created_at, k.expires_at, k.revoked_at, k.grant_id,
    CASE WHEN k.rights IS NULL THEN (SELECT g.scopes FROM oauth_grant g WHERE g.key_id = k.id) END AS program
FROM api_key k JOIN account a ON a.id = k.account_id
WHERE k.account_id = :account_id ORDER BY k.created_at DESC, k.id DESC;

-- name: key_revoke | Revoke one key; nothing when it is unknown or was revoked before.
UPDATE api_key SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL RETURNING id, account_id;

-- name: keys_revoke | Revoke every key of an account.
UPDATE api_key SET revoked_at = :now WHERE account_id = :account_id AND revoked_at IS NULL RETURNING id;

-- name: login_session_insert | A one-time link or a browser session; only the token's hash is kept.
INSERT INTO signin (token_hash, account_id, kind, id, way, agent, created_at, expires_at)
VALUES (:token_hash, :account_id, :kind, :id, :way, :agent, :now, :expires_at);

-- name: login_session_take | Use a one-time link up.
DELETE FROM signin WHERE token_hash = :token_hash AND kind = 'link' AND expires_at > :now
RETURNING account_id;

-- name: login_session_session | The account of a live browser session.
SELECT a.*, s.created_at AS signed_in_at,
    CASE WHEN s.created_at > :now - :fresh_us THEN 1 ELSE 0 END AS is_fresh
FROM signin s JOIN account a ON a.id = s.account_id
WHERE s.token_hash = :token_hash AND s.kind = 'session' AND s.expires_at > :now;

-- name: login_session_end | End a browser session.
DELETE FROM signin WHERE token_hash = :token_hash RETURNING account_id;

-- name: login_session_sweep | Forget what has expired.
DELETE FROM signin WHERE expires_at <= :now RETURNING account_id;

-- name: idempotency_insert | Claim an Idempotency-Key; nothing when it is taken.
INSERT INTO idempotency (id, body_hash, boot, created_at) VALUES (:id, :body_hash, :boot, :now)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: idempotency_get | What is known of an Idempotency-Key.
SELECT * FROM idempotency WHERE id = :id;

-- name: idempotency_adopt | Take over a claim whose server died before it answered.
UPDATE idempotency SET boot = :boot WHERE id = :id AND boot = :old_boot AND status IS NULL RETURNING id;

-- name: idempotency_finish | Keep the answer for replays.
UPDATE idempotency SET status = :status, headers = :headers, body = :body WHERE id = :id;

-- name: idempotency_forget | Let the key be used again: the answer was none that is kept.
DELETE FROM idempotency WHERE id = :id;

-- name: idempotency_sweep | Forget answers that are older than `before`.
DELETE FROM idempotency WHERE created_at < :before RETURNING id;
