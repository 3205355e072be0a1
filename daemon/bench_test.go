package daemon

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// benchDaemon starts a daemon over five real nodes. change may change the config.
func benchDaemon(b *testing.B, change ...func(*config.Config)) *config.Config {
	b.Helper()
	cluster := redlocktest.StartRedis(b, 5)
	cluster.Admit(b) // without it the first lock waits for the quarantine
	cfg := config.Dev()
	cfg.Quorum.Nodes, cfg.Quorum.NodeTimeout = nil, 50*time.Millisecond
	for i, server := range cluster.Servers {
		cfg.Quorum.Nodes = append(cfg.Quorum.Nodes, config.Node{Name: string(rune('a' + i)), Address: server.Addr()})
	}
	cfg.Socket.Path = b.TempDir() + "/s"
	for _, change := range change {
		change(cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Run(ctx, cfg, hclog.NewNullLogger(), RunOptions{Ready: func() { close(ready) }})
	}()
	<-ready
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	return cfg
}

func dialClient(b *testing.B, cfg *config.Config) *client.Client {
	b.Helper()
	c, err := client.Dial(b.Context(), cfg.Socket.Path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

func pair(b *testing.B, c *client.Client, name string) {
	lease, err := c.Lock(context.Background(), name)
	if err != nil {
		b.Fatal(err)
	}
	if err := lease.Unlock(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPair measures a lock and an unlock through the socket, on five real nodes. Client and
// daemon share a process.
func BenchmarkPair(b *testing.B) {
	b.Run("1 worker", func(b *testing.B) {
		c := dialClient(b, benchDaemon(b))
		b.ReportAllocs()
		for b.Loop() {
			pair(b, c, "a")
		}
	})
	b.Run("1 worker, with metrics", func(b *testing.B) {
		c := dialClient(b, benchDaemon(b, func(cfg *config.Config) { cfg.Metrics = &config.Metrics{Address: freeAddress(b)} }))
		b.ReportAllocs()
		for b.Loop() {
			pair(b, c, "a")
		}
	})
	b.Run("64 workers, one connection", func(b *testing.B) {
		c := dialClient(b, benchDaemon(b))
		parallel(b, func() *client.Client { return c })
	})
	b.Run("64 workers, a connection each", func(b *testing.B) {
		cfg := benchDaemon(b)
		parallel(b, func() *client.Client { return dialClient(b, cfg) })
	})
}

func parallel(b *testing.B, connect func() *client.Client) {
	var worker atomic.Int64
	b.SetParallelism(32) // times GOMAXPROCS, which is 2 on the reference machine
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c, name := connect(), fmt.Sprint("lock-", worker.Add(1))
		for pb.Next() {
			pair(b, c, name)
		}
	})
}
