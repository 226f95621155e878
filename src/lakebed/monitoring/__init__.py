"""Monitoring of the service: metrics, endpoints, logs."""
