"""Automatic failover: the rules of ``eruca.broker.failover`` carried out, by a coordination service and a store.

``driver`` is one broker's part in its group; ``keys`` is what etcd holds, ``presence`` the hold on which a broker's
keys stand, ``candidacy`` whose turn it is to stand for election, ``ports`` what the driver asks of the broker around
it. ``links`` are its connections: ``master_link`` to the master, ``replicas`` to the replicas, ``messages`` what is
said. ``confirmation`` is what may be shown and answered, ``tables`` what of topics, groups, offsets and locks.
"""
