"""A cluster that etcd decides for: a client of its JSON gateway, the keys, and what drives them."""
