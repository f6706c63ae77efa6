"""What a reader does: batches and micro-batches, their partitions, the pulls, and the decoding of stored records."""
