-- Prompts that a client took out of its history; the predictions themselves stay.
CREATE TABLE graph_forgotten (
    account_id    TEXT NOT NULL REFERENCES account (id),
    prediction_id TEXT NOT NULL,
    PRIMARY KEY (account_id, prediction_id)
);
