"""A service's sampler as an engine, in a worker process: the SDK, and the key, stay out of the control process."""
