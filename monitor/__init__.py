"""Specwatch: the acceptance-rate monitor for speculative decoding."""

__version__ = "0.1.0"
