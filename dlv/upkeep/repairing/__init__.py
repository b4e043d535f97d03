"""fsck --repair: the same bytes found elsewhere, or set aside."""
