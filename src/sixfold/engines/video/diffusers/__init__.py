"""Films by a diffusion model's weights."""
