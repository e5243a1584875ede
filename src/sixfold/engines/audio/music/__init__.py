"""Music without weights: composition, arrangement, instruments and mixing."""
