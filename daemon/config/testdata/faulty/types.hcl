quorum {
  key_prefix   = 5
  max_ttl      = 30
  node_timeout = ["50ms"]
  node "a" {
    address = null
    durable = "true"
  }
  node "b" {
    address = { host = "10.0.0.2", port = 6379 }
    durable = 1
  }
}

lease {
  ttl = unquoted
}

socket {
  mode = 0660
}

access {
  rule "web" {
    users = "www-data"
    locks = ["web/*", 7]
    allow = [for a in ["lock"] : a]
  }
}

limits {
  connections          = "10000"
  connections_per_user = true
  leases_per_user      = file("x")
  waiters_per_user     = 10 * 1000
  requests_per_second  = -(1)
}

log {
  level  = "${debug}"
  format = <<TEXT
text
TEXT
}
