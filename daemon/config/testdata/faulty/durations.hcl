quorum {
  max_ttl      = "25h"
  node_timeout = "0s"
  node "a" { address = "10.0.0.1:6379" }
}

lease {
  ttl      = "10"
  max_hold = "-1s"
  linger   = "1 minute"
}
