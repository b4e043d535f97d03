"""The stock TensorBoard over dlv's curves, and the older HTTP API, behind one guard."""
