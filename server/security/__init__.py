"""Who somebody is: users, logins, and what is let in before one."""
