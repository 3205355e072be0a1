quorum {
  node "a" { address = "10.0.0.1:6379" }
}

socket {
  path = "/run/a-path-that-the-kernel-would-cut/0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/redlockd.sock"
  mode = "0060"
}
