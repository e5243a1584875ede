"""Words of a prompt: compounds, places, and the words that a scene shows."""
