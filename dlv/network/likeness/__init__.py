"""Whether two networks, or two layers, are the same, and what differs between them."""
