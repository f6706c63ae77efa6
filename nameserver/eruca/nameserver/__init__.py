"""The nameserver: the addresses of brokers, their topics, and whether they are alive.

Brokers register with every nameserver; nameservers do not know one another. Everything is in memory except the
key-value configuration, which is in a file.
"""
