"""Video generation with the weights of a diffusion model."""
