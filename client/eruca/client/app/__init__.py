"""Applications: functions that handle messages, what they need, and how they start and stop together."""
