-- name: account_set_budgets | Set the budgets of an organization.
UPDATE account SET budget_day = :budget_day, budget_month = :budget_month WHERE id = :id;

-- name: account_rename | Replace the e-mail address or handle of an account; return no row if it is taken.
UPDATE account SET email = :email, password_hash = NULL
WHERE id = :id AND NOT EXISTS (SELECT 1 FROM account other WHERE other.email = :email) RETURNING id;

-- name: organizations_of | Return the organizations that a person is a member of, oldest membership first.
SELECT m.account_id, a.email AS name, m.role, m.id AS member_id FROM member m JOIN account a ON a.id = m.account_id
WHERE m.person_id = :person_id ORDER BY m.id;

-- name: members_of | Return the members of an organization, oldest first.
SELECT m.*, p.email, t.name AS team FROM member m JOIN account p ON p.id = m.person_id
LEFT JOIN team t ON t.id = m.team_id WHERE m.account_id = :account_id ORDER BY m.id;

-- name: member_by_id | Return a member of an organization.
SELECT m.*, p.email, t.name AS team FROM member m JOIN account p ON p.id = m.person_id
LEFT JOIN team t ON t.id = m.team_id WHERE m.account_id = :account_id AND m.id = :id;

-- name: member_of_person | Return the membership of a person in an organization.
SELECT m.*, p.email, t.name AS team FROM member m JOIN account p ON p.id = m.person_id
LEFT JOIN team t ON t.id = m.team_id WHERE m.account_id = :account_id AND m.person_id = :person_id;

-- name: members_count | Return the number of members of an organization.
SELECT COUNT(*) AS total FROM member WHERE account_id = :account_id;

-- name: member_insert | Insert a member; return no row if the person is one already.
INSERT INTO member (id, account_id, person_id, role, team_id, key_id, source, budget_day, budget_month, created_at)
VALUES (:id, :account_id, :person_id, :role, :team_id, :key_id, :source, :budget_day, :budget_month, :now)
ON CONFLICT (account_id, person_id) DO NOTHING
RETURNING id;

-- name: member_change | Set the role, team and budgets of a member; the role of the owner stays.
UPDATE member SET role = CASE WHEN role = 'owner' THEN role ELSE :role END, team_id = :team_id,
                  budget_day = :budget_day, budget_month = :budget_month
WHERE id = :id AND account_id = :account_id;

-- name: member_keys_move | Set the team of a member's active keys.
UPDATE api_key SET team_id = :team_id WHERE member_id = :member_id AND revoked_at IS NULL;

-- name: member_remove | Delete a member; return no row for the owner.
DELETE FROM member WHERE id = :id AND account_id = :account_id AND role <> 'owner' RETURNING person_id;

-- name: former_member_put | Keep the id and the budgets of a member who leaves.
INSERT INTO former_member (id, account_id, person_id, budget_day, budget_month)
VALUES (:id, :account_id, :person_id, :budget_day, :budget_month)
ON CONFLICT (account_id, person_id) DO UPDATE
SET id = excluded.id, budget_day = excluded.budget_day, budget_month = excluded.budget_month;

-- name: former_member_take | Delete a former member and return its id and budgets.
DELETE FROM former_member WHERE account_id = :account_id AND person_id = :person_id
RETURNING id, budget_day, budget_month;

-- name: member_keys_revoke | Revoke all keys of a member.
UPDATE api_key SET revoked_at = :now WHERE member_id = :member_id AND revoked_at IS NULL;

-- name: member_grants_end | End all OAuth grants of a member.
UPDATE oauth_grant SET ended_at = :now WHERE member_id = :member_id AND ended_at IS NULL;

-- name: member_sessions_end | Delete the login sessions with which a person acts for an organization.
DELETE FROM signin WHERE account_id = :person_id AND organization_id = :account_id;

-- name: members_sessions_end | Delete the login sessions that act for an organization, except one.
DELETE FROM signin WHERE organization_id = :account_id AND token_hash <> :but;

-- name: person_grants_end | End the OAuth grants of a person in all organizations.
UPDATE oauth_grant SET ended_at = :now
WHERE ended_at IS NULL AND member_id IN (SELECT id FROM member WHERE person_id = :person_id) RETURNING key_id;

-- name: person_keys_revoke | Revoke the keys of a person in all organizations, and the keys of teams there that the person has created, except those that stand for the member.
UPDATE api_key SET revoked_at = :now
WHERE revoked_at IS NULL AND hint <> '' AND id IN (
  SELECT k.id FROM member m JOIN api_key k ON k.member_id = m.id WHERE m.person_id = :person_id
  UNION ALL
  SELECT k.id FROM member m JOIN api_key k ON k.account_id = m.account_id
  WHERE m.person_id = :person_id AND k.creator_id = :person_id);

-- name: person_invitations_end | Delete the invitations to an account by its own sign-in, and those of its person to organizations.
DELETE FROM invitation WHERE id IN (
  SELECT i.id FROM invitation i WHERE i.account_id = :person_id AND i.member_id IS NULL
  UNION ALL
  SELECT i.id FROM member m JOIN invitation i ON i.account_id = m.account_id AND i.member_id = m.id
  WHERE m.person_id = :person_id);

-- name: member_demote_owner | Make the owner of an organization an admin.
UPDATE member SET role = 'admin' WHERE account_id = :account_id AND role = 'owner';

-- name: member_promote | Make a member the owner of an organization.
UPDATE member SET role = 'owner' WHERE account_id = :account_id AND id = :id;

-- name: passkeys_remove | Delete all passkeys of an account.
DELETE FROM passkey WHERE account_id = :account_id;

-- name: identities_move | Move the OpenID identities of an account to another one.
UPDATE identity SET account_id = :person_id WHERE account_id = :account_id;

-- name: memberships_move | Move the memberships of an account to another one.
UPDATE member SET person_id = :person_id WHERE person_id = :account_id;

-- name: sessions_separate | Move the login sessions and links of an account to another one, which goes on acting for it.
UPDATE signin SET account_id = :person_id, organization_id = COALESCE(organization_id, account_id)
WHERE account_id = :account_id;

-- name: keys_take | Make the keys of an account, except those of members and teams, keys of a member.
UPDATE api_key SET member_id = :member_id WHERE account_id = :account_id AND member_id IS NULL AND team_id IS NULL;

-- name: grants_take | Make the OAuth grants of an account, except those of members, grants of a member.
UPDATE oauth_grant SET member_id = :member_id WHERE account_id = :account_id AND member_id IS NULL;

-- name: invitations_take | Attribute the invitations of an account itself to a member.
UPDATE invitation SET member_id = :member_id WHERE account_id = :account_id AND member_id IS NULL;

-- name: alerts_take | Attribute the cost alerts of an account itself to a member.
UPDATE cost_alert SET member_id = :member_id
WHERE account_id = :account_id AND member_id IS NULL AND by_operator = 0;

-- name: hooks_take | Attribute the guardrails of an account itself to a member.
UPDATE guardrail SET member_id = :member_id WHERE account_id = :account_id AND member_id IS NULL;

-- name: shares_take | Attribute the shares of an account itself to a member.
UPDATE share SET member_id = :member_id WHERE account_id = :account_id AND member_id IS NULL;

-- name: shared_folders_take | Attribute the shared folders of an account itself to a member.
UPDATE shared_folder SET member_id = :member_id WHERE account_id = :account_id AND member_id IS NULL;

-- name: teams_of | Return the teams of an organization with their number of members, by name.
SELECT t.*, (SELECT COUNT(*) FROM member m WHERE m.team_id = t.id) AS members FROM team t
WHERE t.account_id = :account_id ORDER BY t.name, t.id;

-- name: team_by_id | Return a team of an organization.
SELECT t.*, (SELECT COUNT(*) FROM member m WHERE m.team_id = t.id) AS members FROM team t
WHERE t.account_id = :account_id AND t.id = :id;

-- name: team_insert | Insert a team; return no row if its name is taken.
INSERT INTO team (id, account_id, name, budget_day, budget_month, created_at)
VALUES (:id, :account_id, :name, :budget_day, :budget_month, :now)
ON CONFLICT (account_id, name) DO NOTHING
RETURNING id;

-- name: team_change | Set the name and budgets of a team; return no row if the name is taken.
UPDATE team SET name = :name, budget_day = :budget_day, budget_month = :budget_month
WHERE id = :id AND account_id = :account_id
  AND NOT EXISTS (SELECT 1 FROM team t WHERE t.account_id = :account_id AND t.name = :name AND t.id <> :id)
RETURNING id;

-- name: team_keys_revoke | Revoke the keys of a team that belong to no member.
UPDATE api_key SET revoked_at = :now
WHERE account_id = :account_id AND team_id = :team_id AND member_id IS NULL AND revoked_at IS NULL;

-- name: team_keys_leave | Remove the keys of members from a team.
UPDATE api_key SET team_id = NULL WHERE account_id = :account_id AND team_id = :team_id AND member_id IS NOT NULL;

-- name: team_members_leave | Remove the members from a team.
UPDATE member SET team_id = NULL WHERE account_id = :account_id AND team_id = :team_id;

-- name: team_invitations_leave | Remove the team from invitations.
UPDATE invitation SET team_id = NULL WHERE account_id = :account_id AND team_id = :team_id;

-- name: team_remove | Delete a team.
DELETE FROM team WHERE account_id = :account_id AND id = :team_id;

-- name: invitation_insert | Insert an invitation; only the hash of its token is stored.
INSERT INTO invitation (id, account_id, token_hash, email, role, team_id, invited_by, member_id, key_id, created_at, expires_at)
VALUES (:id, :account_id, :token_hash, :email, :role, :team_id, :invited_by, :member_id, :key_id, :now, :now + :life);

-- name: invitations_of | Return the unexpired invitations of an organization, newest first.
SELECT i.*, a.email AS organization, t.name AS team FROM invitation i JOIN account a ON a.id = i.account_id
LEFT JOIN team t ON t.id = i.team_id
WHERE i.account_id = :account_id AND i.expires_at > :now AND {has_valid_key i} ORDER BY i.id DESC;

-- name: invitation_by_token | Return an unexpired invitation by the hash of its token, unless its organization is closed or suspended, its sender is suspended or no longer an admin, or the key of its sender has ended.
SELECT i.*, a.email AS organization, t.name AS team FROM invitation i JOIN account a ON a.id = i.account_id
LEFT JOIN team t ON t.id = i.team_id
WHERE i.token_hash = :token_hash AND i.expires_at > :now AND a.closing_at IS NULL AND a.suspended_at IS NULL
  AND {has_active_admin i} AND {has_valid_key i};

-- name: invitation_end | Delete an invitation.
DELETE FROM invitation WHERE id = :id AND account_id = :account_id RETURNING id;

-- name: invitations_end_member | Delete the invitations by a member of an organization.
DELETE FROM invitation WHERE account_id = :account_id AND member_id = :member_id;

-- name: invitation_sweep | Delete expired invitations.
DELETE FROM invitation WHERE expires_at <= :before RETURNING id;

-- name: key_holders | Return the keys of an account that belong to a member or a team.
SELECT id, member_id, team_id FROM api_key WHERE account_id = :account_id AND (member_id IS NOT NULL OR team_id IS NOT NULL);

-- name: budget_begin | Begin the spending counter of an organization with what it has paid since a time and was not refunded, and what its counted holds reserve.
INSERT INTO key_spend (key_id, period, amount)
SELECT :id, :period,
    COALESCE(SUM(amount), 0)
    + (SELECT COALESCE(SUM(h.amount), 0) FROM hold h WHERE h.account_id = :id AND h.state = 'pending'
       AND h.created_at >= :since AND (h.key_id = :id OR h.key_id LIKE '% ' || :id))
FROM transfer
WHERE debit = :id AND created_at >= :since AND kind IN ('charge', 'chat', 'session')
  AND NOT EXISTS (SELECT 1 FROM transfer r WHERE r.id = 'refund:' || transfer.hold_id)
ON CONFLICT (key_id, period) DO UPDATE SET amount = excluded.amount;
