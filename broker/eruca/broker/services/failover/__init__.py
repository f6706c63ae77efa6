"""Automatic failover: the rules of ``eruca.broker.failover`` carried out, by a coordination service and a store.

``driver`` is one broker's part in its group; ``keys`` is what etcd holds, ``presence`` the hold on which a broker's
keys stand, ``candidacy`` whose turn it is to stand for election, ``ports`` what the driver asks of the broker around
it. No broker starts a driver yet: the HA protocol has no epochs.
"""
