"""The subject of a film on nothing, frame by frame, its edge at rest where the subject is."""
