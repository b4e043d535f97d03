"""Results of the library as tables, documents for --json, and text; a module per command.

The commands call these; nothing here computes anything but a layout.
"""
