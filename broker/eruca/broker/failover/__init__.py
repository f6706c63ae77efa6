"""Automatic failover: the rules by which the brokers of a group choose their master, as pure functions.

Without I/O, clock and randomness: an event and what a broker knows go in, what it knows then and what it has to do come
out. Who reads etcd, keeps connections and asks clocks is elsewhere. A test searches all orders of events with these
functions (``tests/faults/test_failover_search``).

The principle: a message is acknowledged when every member of the set that etcd has (``syncStateSet``) holds it in the
present epoch, and only a member of that set becomes master, by one transaction that raises the epoch. So whoever is
elected has all that was acknowledged, and the former master can confirm nothing that the new one lacks. No clock is in
this argument.
"""
