-- name: login_sessions_of | Return the 1,000 newest unexpired login sessions of an account.
SELECT id, way, agent, created_at, expires_at, CASE WHEN token_hash = :token_hash THEN 1 ELSE 0 END AS this
FROM signin WHERE account_id = :account_id AND kind = 'session' AND expires_at > :now
ORDER BY created_at DESC, id DESC LIMIT 1000;

-- name: login_session_end_one | Delete one login session of an account.
DELETE FROM signin WHERE account_id = :account_id AND id = :id AND kind = 'session' RETURNING id;

-- name: login_sessions_end | Delete all login sessions and links of an account except one.
DELETE FROM signin WHERE account_id = :account_id AND token_hash <> :but RETURNING id;

-- name: login_sessions_end_by_way | Delete all login sessions of an account that were opened in one way, except one.
DELETE FROM signin
WHERE account_id = :account_id AND kind = 'session' AND way = :way AND token_hash <> :but RETURNING id;

-- name: audit_insert | Insert an entry of an account's audit log.
INSERT INTO audit (id, account_id, action, detail, created_at)
VALUES (:id, :account_id, :action, :detail, :now);

-- name: audit_page | Return a page of an account's audit log, newest first.
SELECT id, action, detail, created_at FROM audit
WHERE account_id = :account_id AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: auth_challenge_begin | Insert an authentication challenge; replace an earlier one with the same token.
INSERT INTO ceremony (token_hash, kind, content, expires_at) VALUES (:token_hash, :kind, :content, :now + :life)
ON CONFLICT (token_hash) DO UPDATE
SET kind = excluded.kind, content = excluded.content, expires_at = excluded.expires_at;

-- name: auth_challenge_take | Delete an unexpired authentication challenge and return its content, so that it is used only once.
DELETE FROM ceremony WHERE token_hash = :token_hash AND kind = :kind AND expires_at > :now RETURNING content;

-- name: auth_challenge_sweep | Delete expired authentication challenges.
DELETE FROM ceremony WHERE expires_at <= :now;

-- name: passkey_insert | Insert a passkey; return no row if its credential is already registered.
INSERT INTO passkey (id, account_id, credential, public_key, uses, name, created_at)
VALUES (:id, :account_id, :credential, :public_key, :uses, :name, :now)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: passkeys_of | Return an account's passkeys, oldest first.
SELECT id, credential, name, created_at, used_at FROM passkey WHERE account_id = :account_id ORDER BY id;

-- name: passkey_by_credential | Return a passkey by its credential id.
SELECT id, account_id, public_key, uses FROM passkey WHERE credential = :credential;

-- name: passkey_used | Update a passkey's signature counter and time of use; the counter must increase unless it stays 0.
UPDATE passkey SET uses = :uses, used_at = :now
WHERE id = :id AND (uses < :uses OR (uses = 0 AND :uses = 0)) RETURNING account_id;

-- name: passkey_remove | Delete a passkey of an account.
DELETE FROM passkey WHERE id = :id AND account_id = :account_id RETURNING name;

-- name: identity_insert | Link an OpenID identity to an account; return no row if the identity is already linked.
INSERT INTO identity (issuer, subject, account_id, email, created_at)
VALUES (:issuer, :subject, :account_id, :email, :now)
ON CONFLICT DO NOTHING
RETURNING account_id;

-- name: identity_account | Return the account linked to an OpenID identity.
SELECT account_id FROM identity WHERE issuer = :issuer AND subject = :subject;

-- name: identities_of | Return an account's OpenID identities, oldest first.
SELECT issuer, subject, email, created_at FROM identity WHERE account_id = :account_id ORDER BY created_at, subject;

-- name: identity_remove | Delete an account's identities of one OpenID provider.
DELETE FROM identity WHERE account_id = :account_id AND issuer = :issuer RETURNING email;
