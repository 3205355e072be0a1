quorum {
  max_ttl = "30s
  node "a" { address = "10.0.0.1:6379" }
}

lease {
  ttl = "10"
}
