"""Speech: text to sound, sound to text, and what lies between: voices, sentences, files of sound."""
