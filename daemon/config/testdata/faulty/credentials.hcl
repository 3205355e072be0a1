quorum {
  node "a" {
    address       = "10.0.0.1:6379"
    username      = "redlockd"
  }
  node "b" {
    address       = "10.0.0.2:6379"
    password_file = "missing-password"
  }
  node "c" {
    address       = "10.0.0.3:6379"
    password_file = "../secrets"
  }
  node "d" {
    address       = "10.0.0.4:6379"
    password_file = "../secrets/empty"
  }
  node "e" {
    address       = "10.0.0.5:6379"
    password_file = "../secrets/two-lines"
  }
  node "f" {
    address       = "10.0.0.6:6379"
    username      = "two words"
    password_file = ""
  }
}
