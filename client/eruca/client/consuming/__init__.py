"""Consuming as a member of a group: which queues it has, how they are read, and what becomes of the messages."""
