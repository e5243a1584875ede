"""llama.cpp on this machine: serves GGUF models, each in its own process."""
