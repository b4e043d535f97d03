"""What gc takes: `roots` and `mark` find what is needed, `policy` says what else stays."""
