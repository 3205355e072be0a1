quorum {
  key_prefix = "redlockd:"
  node "a" { address = "10.0.0.1:6379" }
}
