"""`.npy` and `.npz` files; objects in them are never loaded."""
