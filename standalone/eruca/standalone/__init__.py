"""Nameserver, broker and client together: in one process, as the command ``eruca``, and as a demonstration.

The only package that may import all others.
"""
