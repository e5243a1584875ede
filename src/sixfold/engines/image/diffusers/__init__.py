"""Image generation with diffusion models through the diffusers library, without network access."""
