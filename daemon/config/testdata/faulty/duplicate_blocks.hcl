quorum {
  node "a" { address = "10.0.0.1:6379" }
}

quorum {
  node "b" { address = "10.0.0.2:6379" }
}

log "loud" {}
