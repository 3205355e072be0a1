ttl = "10s"
quorum {
  node "a" {
    address = "10.0.0.1:6379"
    ca_file = "ca.pem"
  }
  ttl = "10s"
}
lease {
  max_ttl      = "30s"
  node_timeout = "50ms"
  address      = "10.0.0.2:6379"
  nothing_like = 1
}
node "b" {
  address = "10.0.0.3:6379"
}
