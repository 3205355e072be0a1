quorum {
  node "a" { address = "10.0.0.1:6379" }
}

limits {
  connections          = -1
  connections_per_user = 1.5
  leases_per_user      = 1000000001
  waiters_per_user     = 1e300
  requests_per_second  = 1e99999999
}
