"""The service on a Ray cluster. Ray Serve places and scales replicas, each of which is one worker."""
