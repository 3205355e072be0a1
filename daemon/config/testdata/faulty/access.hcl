quorum {
  node "a" { address = "10.0.0.1:6379" }
}

access {
  rule "web" {
    users  = ["www-data", "www-data", ""]
    locks  = ["web/*", "two words", "a\tb", "x/***"]
    allow  = ["lock", "delete"]
  }
  rule "web" {
    users  = []
    groups = []
    locks  = []
  }
  rule {}
  rule "ops" {
    users  = ["root", "no-such-user", "4242", "4294967295"]
    groups = ["no-such-group", "root"]
    locks  = ["**"]
    allow  = ["admin"]
  }
}
