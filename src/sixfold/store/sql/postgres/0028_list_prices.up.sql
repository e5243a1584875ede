-- Adds list prices of runs on the operator's own hardware.
-- What is free on the operator's own hardware keeps its list price: of a prediction in micro-dollars, of a
-- session in micro-dollars an hour. NULL where the list price is charged.
ALTER TABLE prediction ADD COLUMN list_price BIGINT CHECK (list_price >= 0);
ALTER TABLE session ADD COLUMN list_rate BIGINT CHECK (list_rate >= 0);
