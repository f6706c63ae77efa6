"""What all clients of an event loop share: connections, routes, heartbeats, and who the client is."""
