quorum {
  node "a" {
    address = "10.0.0.1:6379"
    durable = true
  }
  node "b" {
    address = "10.0.0.2:6379"
    durable = false
  }
}

access {
  rule "web" {
    users = ["www-data"]
    locks = ["web/*"]
    allow = ["lock", "inspect"]
  }
}
