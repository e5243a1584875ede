-- Adds results that are withheld until a run with a price has succeeded.
-- What a run ordered for a run with a price is withheld until that one has succeeded. Its files have the negative of
-- their expiry until then (-1 for none), so that no statement that looks at the expiry finds them.
ALTER TABLE prediction ADD COLUMN withheld INTEGER NOT NULL DEFAULT 0 CHECK (withheld IN (0, 1));
CREATE INDEX prediction_withheld ON prediction (parent_id) WHERE withheld = 1 AND state = 'succeeded';
UPDATE prediction SET withheld = 1
WHERE parent_id IN (SELECT id FROM prediction WHERE price > 0 AND state <> 'succeeded');
UPDATE media SET expires_at = -COALESCE(expires_at, 1)
WHERE prediction_id IN (SELECT id FROM prediction WHERE withheld = 1);
UPDATE media SET expires_at = -COALESCE(expires_at, 1)
WHERE expires_at > 0 AND name IN (SELECT media FROM graph_file)
  AND prediction_id IN (SELECT id FROM prediction
                        WHERE meter = 'children' AND price > 0 AND state <> 'succeeded');
