-- name: login_sessions_of | An account's live browser sessions, newest first.
SELECT id, way, agent, created_at, expires_at, CASE WHEN token_hash = :token_hash THEN 1 ELSE 0 END AS this
FROM signin WHERE account_id = :account_id AND kind = 'session' AND expires_at > :now
ORDER BY created_at DESC, id DESC;

-- name: login_session_end_one | End one session of an account.
DELETE FROM signin WHERE account_id = :account_id AND id = :id AND kind = 'session' RETURNING id;

-- name: login_sessions_end | End every session and link of an account but one.
DELETE FROM signin WHERE account_id = :account_id AND token_hash <> :but RETURNING account_id;

-- name: audit_insert | One line of what was done to an account.
INSERT INTO audit (id, account_id, action, detail, created_at)
VALUES (:id, :account_id, :action, :detail, :now);

-- name: audit_page | What was done to an account, newest first, from before a position.
SELECT id, action, detail, created_at FROM audit
WHERE account_id = :account_id AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: auth_challenge_begin | A ceremony is under way; the one before it with the same token is over.
INSERT INTO ceremony (token_hash, kind, content, expires_at) VALUES (:token_hash, :kind, :content, :now + :life)
ON CONFLICT (token_hash) DO UPDATE
SET kind = excluded.kind, content = excluded.content, expires_at = excluded.expires_at;

-- name: auth_challenge_take | End a ceremony: nobody can end it twice.
DELETE FROM ceremony WHERE token_hash = :token_hash AND kind = :kind AND expires_at > :now RETURNING content;

-- name: auth_challenge_sweep | Forget ceremonies that nobody ended.
DELETE FROM ceremony WHERE expires_at <= :now;

-- name: passkey_insert | One more passkey; nothing when it is known already.
INSERT INTO passkey (id, account_id, credential, public_key, uses, name, created_at)
VALUES (:id, :account_id, :credential, :public_key, :uses, :name, :now)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: passkeys_of | An account's passkeys, oldest first.
SELECT id, credential, name, created_at, used_at FROM passkey WHERE account_id = :account_id ORDER BY id;

-- name: passkey_by_credential | The passkey with a credential's id.
SELECT id, account_id, public_key, uses FROM passkey WHERE credential = :credential;

-- name: passkey_used | A passkey was used; its counter never goes back.
UPDATE passkey SET uses = :uses, used_at = :now
WHERE id = :id AND (uses < :uses OR (uses = 0 AND :uses = 0)) RETURNING account_id;

-- name: passkey_remove | Forget a passkey of an account.
DELETE FROM passkey WHERE id = :id AND account_id = :account_id RETURNING name;

-- name: identity_insert | Link an identity of an OpenID provider to an account; nothing where it is linked already.
INSERT INTO identity (issuer, subject, account_id, email, created_at)
VALUES (:issuer, :subject, :account_id, :email, :now)
ON CONFLICT DO NOTHING
RETURNING account_id;

-- name: identity_account | Whose account an identity is.
SELECT account_id FROM identity WHERE issuer = :issuer AND subject = :subject;

-- name: identities_of | An account's identities.
SELECT issuer, subject, email, created_at FROM identity WHERE account_id = :account_id ORDER BY created_at, subject;

-- name: identity_remove | An account's identities of a provider are none of its any more.
DELETE FROM identity WHERE account_id = :account_id AND issuer = :issuer RETURNING email;
