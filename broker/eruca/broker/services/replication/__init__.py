"""Replication: a slave copies the log and the tables of its master, by RocketMQ's HA protocol (HAService in 4.9.7).

The master's side is ``slaves`` (AcceptSocketService, GroupTransferService) and ``ha_server`` (HAConnection), the
slave's ``ha_client`` (HAClient), ``log_check`` (is it this log's master?) and ``table_sync`` (SlaveSynchronize);
``transfer`` holds what both share; ``pump`` sends a log, here and to the replicas of a group that elects its master.
"""
