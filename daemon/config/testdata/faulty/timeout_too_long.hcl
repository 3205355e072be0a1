quorum {
  node_timeout = "5s"
  node "a" { address = "10.0.0.1:6379" }
}
