quorum {
  node "a" {
    address = "10.0.0.1:6379"
    tls {
      ca_file     = "../secrets/two-lines"
      cert_file   = "client.pem"
      server_name = "redis a"
    }
  }
  node "b" {
    address = "10.0.0.2:6379"
    tls { key_file = "client.key" }
  }
  node "c" {
    address = "10.0.0.3:6379"
    tls {
      cert_file = "missing.pem"
      key_file  = "missing.key"
    }
  }
  node "d" {
    address = "10.0.0.4:6379"
    tls {
      cert_file = "../secrets/two-lines"
      key_file  = "../secrets/two-lines"
    }
  }
  node "e" {
    address = "unix:/run/redis/e.sock"
    tls {}
  }
}
