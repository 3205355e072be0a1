quorum {
  max_ttl = "10s"
  node "a" { address = "10.0.0.1:6379" }
}

lease { ttl = "11s" }
