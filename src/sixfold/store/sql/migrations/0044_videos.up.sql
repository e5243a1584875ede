-- Adds an index of the videos of `/v1/videos`.
CREATE INDEX prediction_videos ON prediction (account_id, id) WHERE face = 'videos';
