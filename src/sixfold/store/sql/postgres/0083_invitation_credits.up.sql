-- Adds the credit of an invitation, which is booked at the first sign-in, and its reason.
ALTER TABLE account ADD COLUMN invitation_credit BIGINT;
ALTER TABLE account ADD COLUMN invitation_reason TEXT;
