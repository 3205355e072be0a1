quorum {
  node { address = "10.0.0.1:6379" }
  node "a" "b" { address = "10.0.0.2:6379" }
  node "all" { address = "10.0.0.3:6379" }
  node "" { address = "10.0.0.4:6379" }
  node "-n" { address = "10.0.0.5:6379" }
  node "c:timeout" { address = "10.0.0.6:6379" }
  node "a-name-of-more-than-thirty-two-bytes" { address = "10.0.0.7:6379" }
  node "naïve" { address = "10.0.0.8:6379" }
}
