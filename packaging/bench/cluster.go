package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

const (
	serverCount = 3 // of an alternative: one may fail
	startLimit  = 30 * time.Second
)

// cluster is the servers of one alternative.
type cluster struct {
	nodes     []*node  // Redis
	servers   []*child // of another kind
	addresses []string // for clients
	networks  []*network
	leader    func(context.Context) (int, error) // the server whose end costs most; nil: all are alike
}

// delays says whether a network is between the clients and the servers.
type delays struct {
	on     bool
	oneWay time.Duration // that its process adds
}

// forward returns addresses through which the network, if any, forwards to those given.
func (c *cluster) forward(dir, name string, d delays, addresses []string) ([]string, error) {
	if !d.on {
		return addresses, nil
	}
	n, forwarding, err := forward(dir, "network-"+name, d.oneWay, addresses)
	if err == nil {
		c.networks = append(c.networks, n)
	}
	return forwarding, err
}

// kill ends all processes.
func (c *cluster) kill() {
	killNodes(c.nodes)
	for _, s := range c.servers {
		s.kill()
	}
	for _, n := range c.networks {
		n.kill()
	}
}

// killWorst kills the server whose end costs most.
func (c *cluster) killWorst(ctx context.Context) error {
	worst := 0
	if c.leader != nil {
		var err error
		if worst, err = c.leader(ctx); err != nil {
			return err
		}
	}
	if len(c.nodes) > 0 {
		c.nodes[worst].Kill()
	} else {
		c.servers[worst].kill()
	}
	return nil
}

// startRedis starts that many redis-servers without persistence, as redlockd recommends.
func startRedis(count int) func(context.Context, string, delays) (*cluster, error) {
	return func(_ context.Context, dir string, d delays) (*cluster, error) {
		nodes, err := startNodes(filepath.Join(dir, fmt.Sprintf("redis%d", count)), redlock.DefaultPrefix, count)
		if err != nil {
			return nil, err
		}
		return redisCluster(dir, d, nodes)
	}
}

// startOneRedis starts a redis-server with the snapshots of its default configuration.
func startOneRedis(_ context.Context, dir string, d delays) (*cluster, error) {
	s, err := redlocktest.LaunchRedis(filepath.Join(dir, "one"), redlocktest.TCP(), redlocktest.Args("--save", "3600 1 300 100 60 10000"))
	if err != nil {
		return nil, err
	}
	return redisCluster(dir, d, []*node{{Server: s}})
}

func redisCluster(dir string, d delays, nodes []*node) (_ *cluster, err error) {
	c := &cluster{nodes: nodes}
	if c.addresses, err = c.forward(dir, "redis", d, addressesOf(nodes)); err != nil {
		c.kill()
		return nil, err
	}
	for i, n := range nodes {
		n.via = c.addresses[i]
	}
	return c, nil
}
