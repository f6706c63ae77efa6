"""Copies of a master's log and tables on its slaves, by RocketMQ's own HA protocol (HAService in 4.9.7).

``slaves`` and ``supply`` are the master's side, ``following`` and ``tables`` the slave's.
"""
