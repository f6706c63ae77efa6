"""What happens in time: held pulls, registration, notifications, resets, statistics."""
