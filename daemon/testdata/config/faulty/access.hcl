quorum {
  node "a" { address = "10.0.0.1:6379" }
}

access {
  rule "web" {
    users  = ["www-data", "www-data", ""]
    locks  = ["web/*", "a b"]
    allow  = ["lock", "delete"]
  }
  rule "web" {
    users  = []
    groups = []
    locks  = []
  }
  rule {}
}
