"""The catalogue against the files that are the truth: compared both ways, and made again.

`compare` looks, `rebuild` makes a catalogue from facts, packs and manifests. fsck, gc and archive
stand on it.
"""
