"""llama.cpp on this machine: models from GGUF files, each in a process of its own."""
