"""What the service shows of itself: metrics, endpoints, logs."""
