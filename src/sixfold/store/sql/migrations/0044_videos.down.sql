DROP INDEX prediction_videos;
