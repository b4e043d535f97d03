"""The commands below `dlv hub`, a file for each group of them."""
