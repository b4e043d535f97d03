"""How the bits of a matrix are cut into planes; `registry` finds a layout by its name."""
