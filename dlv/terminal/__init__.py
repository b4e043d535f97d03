"""What is printed: tables, colours, progress, the prompt of queries, and what TAB offers."""
