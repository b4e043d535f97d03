"""Curves and networks as pictures and pages."""
