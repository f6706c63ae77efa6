"""The demonstration: send, consume, rewind and read with Spark, on real processes."""
