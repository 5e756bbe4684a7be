"""`horolog demo`: a broker fed with what the machine really has, and a tour of what it answers."""
