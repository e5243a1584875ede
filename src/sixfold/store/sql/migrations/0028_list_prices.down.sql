ALTER TABLE session DROP COLUMN list_rate;
ALTER TABLE prediction DROP COLUMN list_price;
