lease {
  ttl = 10
}

quorum {
  node "a" { address = "10.0.0.1" }
  node_timeout =
  max_ttl = max
}
