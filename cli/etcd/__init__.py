"""Commands that speak to etcd itself."""
