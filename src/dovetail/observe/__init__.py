"""How Dovetail is watched: trace context, log formats, the health of a worker, metrics for Prometheus."""
