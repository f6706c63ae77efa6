"""What the brokers of a group agree on, and where: a small store with revisions and leases that loses nothing.

``port`` says what is asked of it, in four verbs; ``etcd`` asks a real one, by ``http_wire``. Automatic failover
stands on it (``services.failover``).
"""
