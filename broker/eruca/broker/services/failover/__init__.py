"""Automatic failover: the rules of ``eruca.broker.failover`` carried out, by a coordination service and a store.

``driver`` is one broker's part in its group; ``etcd_calls`` is what it asks of etcd, ``keys`` what etcd holds,
``presence`` the hold on which a broker's keys stand, ``master_key`` the key of a master, ``candidacy`` whose turn it is
to stand for election, ``kept`` the group on the disk, ``ports`` what the driver asks of the broker around it. ``links``
are its connections: ``master_link`` to the master (``master_connection``, ``copy_tries``), ``replicas`` to the replicas
(``replica``), ``messages`` what is said. ``relay`` passes on what a former master still gets. ``confirmation`` is what
may be shown and answered, ``tables`` what of topics, groups, offsets and locks.
"""
