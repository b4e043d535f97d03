"""Who trains which trial how far, what was logged, and which trials go on."""
