"""The server's metrics, as Prometheus reads them at `/metrics`."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LATENCY_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)  # seconds
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16)


class ServerMetrics:
    """Names follow vLLM's where it has the metric."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        shared: dict[str, Any] = {"registry": self.registry, "namespace": "uivlm"}
        timed: dict[str, Any] = {**shared, "buckets": LATENCY_BUCKETS}
        self.requests = Counter("requests", "Requests by path and status.", ["path", "status"], **shared)
        self.request_latency = Histogram(
            "e2e_request_latency_seconds", "From the request to the end of its answer.", ["path"], **timed
        )
        self.requests_running = Gauge("num_requests_running", "POST requests in flight.", **shared)
        self.held_bytes = Gauge("request_memory_bytes", "Bodies, screens, histories of requests.", **shared)
        self.decisions = Counter("decisions", "Decisions by action type.", ["action_type"], **shared)
        self.queue_time = Histogram("request_queue_time_seconds", "Until inference began.", **timed)
        self.inference_time = Histogram(
            "request_inference_time_seconds", "Inference time of the batch, divided by its size.", **timed
        )
        self.batch_size = Histogram(
            "batch_size", "Histories in the batch of a request.", buckets=BATCH_SIZE_BUCKETS, **shared
        )
