"""Protocol buffers read and written strictly, by tables of fields."""
