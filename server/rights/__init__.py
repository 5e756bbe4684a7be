"""What each request asks for is looked up, and what may not be done is refused."""
