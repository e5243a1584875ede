"""Videos by the weights of a diffusion model."""
