"""Checkpoints that other programs wrote: one record for all formats, one module per format.

``shards`` reads a folder lazily, ``detect`` says what it is, ``record`` holds what a mixer computes, ``evaluate``
computes it; ``static``, ``sidecar`` and ``report`` analyse, convert and describe any record.
"""
