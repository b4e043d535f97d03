"""Networks as torch modules: trainable, for any batch; `module` is the way in."""
