ALTER TABLE session DROP COLUMN paused_at;
