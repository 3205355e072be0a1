quorum {
  max_ttl      = "30s"
  node_timeout = "50ms"
  node "a" { address = "10.0.0.1:6379" }
  node "b" { address = "10.0.0.1:6379" }
  node "c" { address = "10.0.0.3:6379" }
}

lease {
  ttl = "40s"
}

log {
  level = = "info"
}
