-- Adds prices that depend on the run of a prediction.
-- How a prediction's price follows from its run: `meter` says by what, `rate` is the price of one unit of it
-- (of an hour for time). The price is what was held then, the cost what was captured.
ALTER TABLE prediction ADD COLUMN meter TEXT NOT NULL DEFAULT 'fixed'
    CHECK (meter IN ('fixed', 'time', 'units', 'children'));
ALTER TABLE prediction ADD COLUMN rate BIGINT NOT NULL DEFAULT 0 CHECK (rate >= 0);
ALTER TABLE prediction ADD COLUMN hardware TEXT;
CREATE INDEX prediction_children ON prediction (parent_id) WHERE parent_id IS NOT NULL;
