"""The nameserver: which broker has which topics, where it is, and whether it lives.

Brokers register with every nameserver; nameservers do not know one another. All of it is in memory, except the
key-value configuration, which is kept in a file.
"""
