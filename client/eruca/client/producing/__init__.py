"""Sending: producers, one send from its first attempt to its result, transactions and request-reply."""
