"""`horolog demo`: a broker fed with real data of this machine, and a tour of its features."""
