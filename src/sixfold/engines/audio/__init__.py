"""Audio engines without weights: effects, ambience, music, piano and stem separation."""
