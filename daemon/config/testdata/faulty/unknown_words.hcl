quorums {
}

quorum {
  max_tll  = "30s"
  password = "hunter2"
  node "a" {
    adress    = "10.0.0.1:6379"
    passwords = "hunter2"
    tls {
      ca       = "ca.pem"
      MAX_TTL  = "30s"
      PASSWORD = "hunter3"
    }
  }
}

lease { zebra = 1 }

log = "debug"

limits {
  connections { max = 5 }
}

version = 3
