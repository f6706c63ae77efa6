"""What a writer does: rows to messages, the sending of messages, half messages and the markers that decide them."""
