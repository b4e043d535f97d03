"""Parts of matrices: slices, first planes and bounds; `retrieval` asks, `reader` reads."""
