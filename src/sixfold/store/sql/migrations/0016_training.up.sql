-- Adds an index of trainings by account.

CREATE INDEX prediction_training ON prediction (account_id) WHERE model = 'training';
