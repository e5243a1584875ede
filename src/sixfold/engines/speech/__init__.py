"""Speech synthesis and recognition, with voices, sentence splitting and audio files."""
