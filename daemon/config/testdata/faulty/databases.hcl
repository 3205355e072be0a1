quorum {
  node "a" {
    address  = "10.0.0.1:6379"
    database = 1
  }
  node "b" {
    address  = "10.0.0.1:6379"
    database = 2
  }
  node "c" { address = "10.0.0.3:6379/2" }
  node "d" {
    address  = "10.0.0.4:6379"
    database = -1
  }
  node "e" {
    address  = "10.0.0.5:6379"
    database = "2"
  }
  node "f" {
    address  = "10.0.0.6:6379"
    database = 2147483648
  }
}
