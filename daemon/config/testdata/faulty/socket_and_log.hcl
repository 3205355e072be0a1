quorum {
  node "a" { address = "10.0.0.1:6379" }
}

socket {
  path  = "redlockd.sock"
  mode  = "0868"
  group = ""
}

log {
  level  = "loud"
  format = "xml"
}
