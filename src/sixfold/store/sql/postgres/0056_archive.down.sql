CREATE OR REPLACE FUNCTION transfer_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation'; END $$;
DROP TABLE sweep_lease;
DROP TABLE closing_balance;
DROP TABLE archive_account;
DROP TABLE archive_segment;
