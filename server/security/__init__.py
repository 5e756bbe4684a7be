"""Principals: users, logins, and what is let in before one."""
