"""HTTP port: connections and authentication."""
