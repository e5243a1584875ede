"""Sound that fits a prompt, synthesised: places, weather, creatures, people, and a bed of music."""
