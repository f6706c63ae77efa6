"""Nameserver, broker and client together: in this process, as one command, and as a demonstration.

The only place that may import all the other parts.
"""
