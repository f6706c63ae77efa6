"""What happens in time: held pulls, registration, resets, delays, transactions, replication."""
