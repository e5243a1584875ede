-- Lists the videos of an account that were requested at /v1/videos.
CREATE INDEX prediction_videos ON prediction (account_id, id) WHERE face = 'videos';
