ALTER TABLE account DROP COLUMN invitation_reason;
ALTER TABLE account DROP COLUMN invitation_credit;
