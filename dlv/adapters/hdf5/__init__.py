"""HDF5 files read and written without the C library; `file` is the way in."""
