"""Requests about logins, users, ACLs and quotas."""
