"""Principals, users, logins and ACLs."""
