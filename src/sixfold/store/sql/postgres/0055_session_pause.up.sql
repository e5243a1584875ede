-- Adds the time since which a session is paused: that time is not charged.
ALTER TABLE session ADD COLUMN paused_at BIGINT;
