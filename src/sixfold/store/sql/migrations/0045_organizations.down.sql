DROP TABLE invitation;
DROP TABLE member;
DROP TABLE team;
-- A session that acts for an organization would act for its own account.
DELETE FROM signin WHERE organization_id IS NOT NULL;
-- Keys of members and teams would have no role that limits their rights.
UPDATE oauth_grant SET ended_at = created_at WHERE member_id IS NOT NULL AND ended_at IS NULL;
UPDATE api_key SET revoked_at = created_at WHERE (member_id IS NOT NULL OR team_id IS NOT NULL) AND revoked_at IS NULL;
DROP INDEX signin_organization;
DROP INDEX oauth_grant_member;
DROP INDEX api_key_team;
DROP INDEX api_key_member;
ALTER TABLE signin DROP COLUMN organization_id;
ALTER TABLE oauth_grant DROP COLUMN member_id;
ALTER TABLE api_key DROP COLUMN team_id;
ALTER TABLE api_key DROP COLUMN member_id;
ALTER TABLE account DROP COLUMN budget_month;
ALTER TABLE account DROP COLUMN budget_day;
