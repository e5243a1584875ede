-- Adds an index of the predictions for requests to the gateway, which its log of calls lists.
CREATE INDEX prediction_gateway ON prediction (account_id, id)
    WHERE parent_id IS NULL AND face IN ('openai', 'service', 'training', 'videos');
