"""Images by a diffusion model's weights, through the library diffusers; nothing here asks the network."""
