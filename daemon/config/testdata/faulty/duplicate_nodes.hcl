quorum {
  node "a" { address = "10.0.0.1:6379" }
  node "a" { address = "10.0.0.2:6379" }
  node "b" { address = "10.0.0.1:06379" }
  node "c" { address = "Redis-C:6379" }
  node "d" { address = "redis-c:6379" }
  node "e" { address = "[fd00::5]:6379" }
  node "f" { address = "[fd00:0::5]:6379" }
  node "g" { address = "unix:/run/redis/g.sock" }
  node "h" { address = "unix:/run//redis/g.sock" }
}
