# /etc/redlockd/redlockd.hcl: the configuration of redlockd, see redlockd.hcl(5).
# Check it with:   redlockd validate
# After a change:  systemctl reload redlockd
#
# What is commented out shows the default, unless it says "example".

quorum {
  # Every host that shares locks needs the same nodes under the same names, prefix and
  # max_ttl. A host with different ones gets no vote. "" shares locks with clients that
  # use bare names.
  # key_prefix = "redlock:"

  # The longest lease time that a client may request. A new or restarted node does not
  # vote for this time, either, because it may have forgotten locks. So the first start
  # with new nodes waits max_ttl, once (ADMIT all ends the wait). A shorter max_ttl is a
  # shorter wait. Leases are extended, so they need not be as long as the work. The nodes
  # remember the largest that any host used.
  # max_ttl = "30s"

  # If a node does not answer within this time, the request to it has failed.
  # node_timeout = "50ms"

  # The nodes: independent Redis masters, version 7 or later, on different machines,
  # no replicas, no cluster, no eviction. Three tolerate one failure, five tolerate two.
  # To change names or number while locks are held: joining and leaving, below. To
  # replace one Redis: change its address host by host, for one node at a time, while all
  # other nodes are up (NODES.md, "Changing the nodes").
  node "a" { address = "10.0.0.1:6379" }
  node "b" { address = "10.0.0.2:6379" }
  node "c" { address = "10.0.0.3:6379" }
  node "d" { address = "[fd00::4]:6379" }

  node "e" {
    address = "10.0.0.5:6379" # or "unix:/run/redis/redis.sock"

    # The number of the database at that address. All hosts must use the same one. Two
    # databases of one server cannot be two nodes: they fail together.
    # database = 0

    # This Redis keeps every vote on disk: appendonly yes and appendfsync always in its
    # redis.conf. Then it may vote at once after a restart. redlockd checks that: if a
    # setting differs, a restart costs max_ttl as with the others. The user default needs
    # all rights, even if it is off: Redis loads the file with them (NODES.md,
    # "Settings").
    # durable = false

    # For a change of the nodes: joining is for a node that is not in the old list, leaving
    # for one that is not in the new list (NODES.md, "Changing the nodes").
    # joining = false
    # leaving = false

    # Example. Relative file names start from $CREDENTIALS_DIRECTORY (systemd's
    # LoadCredential=), or from the directory of this file if that is not set.
    # Passwords and certificates are read again for every connection. Files of
    # LoadCredential= do not change until the service is restarted.
    # username      = "redlockd"
    # password_file = "redis-password"

    # Example. The default of ca_file: the system's roots. cert_file and key_file are for
    # nodes that ask for a certificate. server_name is the name in the node's certificate
    # if it is not the address.
    # tls {
    #   ca_file     = "ca.pem"
    #   cert_file   = "client.pem"
    #   key_file    = "client.key"
    #   server_name = "redis-e"
    # }
  }
}

# The defaults of a LOCK.
# lease {
#   ttl      = "10s" # how soon others get the lock if this host dies; extended until then
#   max_hold = "0s"  # longest total holding time, which max= can only lower; "0s": no bound
#   linger   = "0s"  # how long a lock stays taken after its client has died
# }

# How long a stopping redlockd waits for held locks, while it grants no new ones. For
# containers and hosts in which redlockd and its clients are told to end together. If
# systemd keeps the connections, it waits only when the host shuts down.
# drain = "0s"

# Who can connect. Without access rules, anyone who can open the socket may take any lock.
socket {
  # path = "/run/redlockd/redlockd.sock"
  # mode = "0660"
  group = "redlock" # default: the daemon's own group
}

# Who may do what. Without this block, anyone who can open the socket may do everything
# except FORCE and ADMIT, which are for root and the daemon's own user. With it, users may
# do only what some rule allows, root too. In a lock's name * stands for any characters
# except /, ** for any characters. Users and groups: names of this host, or numbers. "lock"
# takes locks, "inspect" shows who holds them, "admin" revokes them (FORCE), and
# with locks = ["**"] ends quarantines (ADMIT). redlockd validate -as www-data -lock web/cache
# says what is allowed, and by which rule. Example:
# access {
#   rule "web" {
#     users  = ["www-data"]
#     locks  = ["web/*"]
#     allow  = ["lock", "inspect"]
#   }
#   rule "operators" {
#     groups = ["adm"]
#     locks  = ["**"]
#     allow  = ["inspect", "admin"]
#   }
# }

# What clients can use up; 0 is no bound.
# limits {
#   connections          = 10000
#   connections_per_user = 1000
#   leases_per_user      = 10000 # each name of a LOCK, and each LOCK that counts up on a lease
#   waiters_per_user     = 10000 # not TRY and wait=0; each waiter counts as a lease, too
#   requests_per_second  = 0 # of one connection; UNLOCK, BEAT and EXTEND are never refused
# }

# Prometheus scrapes http://ADDRESS/metrics; off without this block. /healthz says that
# the daemon lives, /readyz that a quorum may vote. There is no password: everyone who can
# connect sees how many locks are held and waited for. page adds a status page at /, names
# adds the names and holders of locks to it. Example; for another host to scrape: "0.0.0.0:9852",
# and a firewall.
# metrics {
#   address = "127.0.0.1:9852"
#   page    = false
#   names   = false
# }

# Warnings of redlock doctor that you know and accept: names of its checks.
# doctor {
#   ignore = [] # such as ["fencing", "same-host"]
# }

# grants writes a line for each grant and release (who held which lock, and for how long),
# and for each request that was refused because of another client or the nodes.
# log {
#   level  = "info" # trace, debug, info, warn or error
#   format = "text" # or "json"
#   grants = false
# }
