"""The words of a prompt: compounds, places, and which of them a scene shows."""
