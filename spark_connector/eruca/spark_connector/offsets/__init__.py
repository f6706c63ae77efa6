"""What a plan needs to know: the queues, where they begin and end, offsets by time, by option and by group."""
