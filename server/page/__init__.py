"""The page on the HTTP port, and the JSON for its scripts.

The JSON is internal: its names and shapes change with the page. Every answer is bounded in size and
in work, and gives way to client requests.
"""
