"""The client library."""

import logging

# Programs that have not set up logging see nothing of it on standard error.
logging.getLogger("horolog.client").addHandler(logging.NullHandler())
