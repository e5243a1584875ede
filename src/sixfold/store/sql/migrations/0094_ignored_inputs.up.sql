-- Adds the inputs of a run that its model does not have, each with a similar input, as JSON.
ALTER TABLE prediction ADD COLUMN ignored_inputs TEXT NOT NULL DEFAULT '';
