"""GGUF files of llama.cpp and its kin: `reader` is the adapter, `header` the strict head."""
