"""The page on the HTTP port, and the JSON that its scripts ask for.

That JSON is internal: names and shapes go with the page and change with it. Every answer is bounded
in size and in work, and gives way to the requests of clients.
"""
