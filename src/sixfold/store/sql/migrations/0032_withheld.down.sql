UPDATE media SET expires_at = CASE WHEN expires_at = -1 THEN NULL ELSE -expires_at END WHERE expires_at < 0;
DROP INDEX prediction_withheld;
ALTER TABLE prediction DROP COLUMN withheld;
