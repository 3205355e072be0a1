quorum {
  node "a" { address = "10.0.0.1:6379" }
}

metrics { address = ":9852" }
metrics { names = true }
