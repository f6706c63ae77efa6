"""The broker: keeps messages, serves producers and consumers."""
