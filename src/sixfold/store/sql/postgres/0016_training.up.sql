-- Trainings are looked for by their account whenever its services are.

CREATE INDEX prediction_training ON prediction (account_id) WHERE model = 'training';
