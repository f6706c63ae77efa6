"""From a request's header to a service or the store, and back to a reply."""
