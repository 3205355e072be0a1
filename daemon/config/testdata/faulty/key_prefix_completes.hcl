quorum {
  key_prefix = "red"
  node "a" { address = "10.0.0.1:6379" }
}
