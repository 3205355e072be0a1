quorum {
  key_prefix = "my locks"
  node "a" { address = "10.0.0.1:6379" }
}
