"""Measures Dovetail against the limit of its store and against its peers: `python -m bench`."""
