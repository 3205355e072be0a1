quorum {
  node "a" { address = "ÿþ:6379" }
}
