quorum {
  node "a" { address = "10.0.0.1" }
  node "b" { address = "::1:6379" }
  node "c" { address = ":6379" }
  node "d" { address = "redis-d:0" }
  node "e" { address = "redis-e:70000" }
  node "f" { address = "unix:run/redis.sock" }
  node "g" { address = "redis://:hunter2@10.0.0.7:6379/0" }
  node "h" { address = "default:hunter2@10.0.0.8:6379" }
  node "i" { address = "10.0.0.256:6379" }
  node "j" { address = "redis i:6379" }
  node "k" { address = "" }
  node "l" {}
  node "m" { address = "/run/redis.sock" }
  node "n" { address = "redis-n:redis" }
  node "o" { address = "rediss://10.0.0.15?password=hunter2" }
}
