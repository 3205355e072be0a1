quorum {
  max_ttl = "60"
  node "a" { address = "10.0.0.1:6379" }
}

lease { ttl = "45s" }
