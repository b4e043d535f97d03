"""What several commands need: `options` declares them, `invocation` is one call of one command."""
