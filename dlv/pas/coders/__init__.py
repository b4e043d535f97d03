"""From planes to bytes and back: zstd, rANS and the context coder; `codecs` chooses by config."""
