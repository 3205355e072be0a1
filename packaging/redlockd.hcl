# /etc/redlockd/redlockd.hcl: the configuration of redlockd, see redlockd.hcl(5).
# Check it with:             redlockd validate
# After a change:            systemctl restart redlockd
# log.level and limits only: systemctl reload redlockd
#
# What is commented out shows the default, unless it says "example".

quorum {
  # Every host that shares locks needs the same nodes, prefix and max_ttl.
  # "" shares locks with clients that use bare names.
  # key_prefix = "redlock:"

  # The longest lease that anyone on these nodes may ask for. A node that lost its
  # data must not be started again for so long: this version does not see to it.
  # max_ttl = "30s"

  # A node that does not answer for so long has failed that request.
  # node_timeout = "50ms"

  # The nodes: independent Redis masters on different machines, no replicas, no
  # cluster. Three bear the loss of one, five the loss of two.
  node "a" { address = "10.0.0.1:6379" }
  node "b" { address = "10.0.0.2:6379" }
  node "c" { address = "10.0.0.3:6379" }
  node "d" { address = "[fd00::4]:6379" }

  node "e" {
    address = "10.0.0.5:6379" # or "unix:/run/redis/redis.sock"

    # Example. Relative file names start from $CREDENTIALS_DIRECTORY (systemd's
    # LoadCredential=), or from the directory of this file where that is not set.
    # Passwords and certificates are read again for every connection.
    # username      = "redlockd"
    # password_file = "redis-password"

    # Example. Without ca_file the system's roots count; cert_file and key_file
    # are for nodes that ask for a certificate; server_name is the name in the
    # node's certificate where it is not the address.
    # tls {
    #   ca_file     = "ca.pem"
    #   cert_file   = "client.pem"
    #   key_file    = "client.key"
    #   server_name = "redis-e"
    # }
  }
}

# What a LOCK gets that does not say otherwise.
# lease {
#   ttl      = "10s" # how soon others get the lock if this host dies; kept extended until then
#   max_hold = "0s"  # longest total holding time, which max= can only lower; "0s": no bound
#   linger   = "0s"  # how long a lock stays taken after its client has died
# }

# Who can connect. Whoever can open the socket may take any lock.
socket {
  # path = "/run/redlockd/redlockd.sock"
  # mode = "0660"
  group = "redlock" # default: the daemon's own group
}

# What clients can use up; 0 is no bound.
# limits {
#   connections          = 10000
#   connections_per_user = 1000
#   leases_per_user      = 10000
#   waiters_per_user     = 10000
#   requests_per_second  = 0 # of one connection
# }

# log {
#   level  = "info" # trace, debug, info, warn or error
#   format = "text" # or "json"
# }
