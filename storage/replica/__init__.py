"""One partition's log as one of several copies: leader epochs, copying, following."""
