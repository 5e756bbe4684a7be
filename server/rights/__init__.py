"""Authorization of requests: the rights that each request needs, and the refusals."""
