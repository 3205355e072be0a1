quorum {
  max_ttl = "30s"
}
