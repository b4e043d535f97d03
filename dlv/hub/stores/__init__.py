"""Backends of remotes: objects by key, whole or in ranges, and one PUT-if-absent."""
