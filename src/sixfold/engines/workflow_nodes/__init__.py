"""Node classes that run on this server: images, masks, audio, video, and child predictions."""
