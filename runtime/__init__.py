"""Vision-encoder sharding: every image is encoded once per process group, not once per rank."""

__version__ = "0.1.0"
