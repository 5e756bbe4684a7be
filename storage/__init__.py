"""One partition's log on disk, and the directory of them."""
