quorum {
  key_prefix   = "redlock:"      # "" to share locks with clients that use bare names
  max_ttl      = "30s"           # longest lease anyone on these nodes may ask for; also the quarantine
  node_timeout = "50ms"

  node "a" { address = "10.0.0.1:6379" }
  node "b" { address = "unix:/run/redis/b.sock" }
  node "c" {
    address       = "10.0.0.3:6379"
    database      = 2
    username      = "redlockd"
    password_file = "redis-password"      # relative names: in $CREDENTIALS_DIRECTORY
    durable       = false
    tls {
      ca_file     = "ca.pem"
      cert_file   = "client.pem"
      key_file    = "client.key"
      server_name = "redis-c"
    }
  }
}

lease {
  ttl      = "10s"
  max_hold = "0s"                         # no bound; the ceiling of max=
  linger   = "0s"
}

socket {
  path  = "/run/redlockd/redlockd.sock"
  mode  = "0660"
  group = "redlock"
}

access {             # without this block everyone who can open the socket may lock anything
  rule "web" {
    users  = ["www-data"]
    groups = []
    locks  = ["web/*"]
    allow  = ["lock", "inspect"]          # and "admin"
  }
}

limits {
  connections          = 10000
  connections_per_user = 1000
  leases_per_user      = 10000
  waiters_per_user     = 10000
  requests_per_second  = 0                # a connection; 0: no bound
}

log {
  level  = "info"
  format = "text"                         # or json
}

metrics { address = "127.0.0.1:9852" }    # Prometheus; off without this block
