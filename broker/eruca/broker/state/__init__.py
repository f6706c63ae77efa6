"""What is true now: topics, groups, consumer offsets, connected clients; kept in JSON files where it must last."""
