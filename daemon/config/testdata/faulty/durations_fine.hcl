quorum {
  max_ttl      = "99ms"
  node_timeout = "0.5ms"
  node "a" { address = "10.0.0.1:6379" }
}

lease {
  ttl      = ""
  max_hold = "9999999999999h"
  linger   = "0"
}
