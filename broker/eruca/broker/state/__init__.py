"""The present state: topics, groups, consumer offsets, connected clients; saved in JSON files where it must last."""
