package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	goredispool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	rueidispool "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
)

// redsyncContender is redsync v4 as its README shows it, with one pool for each node.
type redsyncContender struct {
	rs      *redsync.Redsync
	closers []func()
}

// openRedsyncGoRedis uses go-redis pools with room for a connection for each worker, and defaults
// otherwise.
func openRedsyncGoRedis(_ context.Context, f *fleet) (contender, error) {
	c := &redsyncContender{}
	var pools []redsyncredis.Pool
	for _, n := range f.nodes {
		db := redis.NewClient(&redis.Options{Addr: n.address(), PoolSize: connectionsEach})
		c.closers = append(c.closers, func() { db.Close() })
		pools = append(pools, goredispool.NewPool(db))
	}
	c.rs = redsync.New(pools...)
	return c, nil
}

func openRedsyncRueidis(_ context.Context, f *fleet) (contender, error) {
	clients, err := rueidisClients(f.nodes)
	if err != nil {
		return nil, err
	}
	c := &redsyncContender{}
	var pools []redsyncredis.Pool
	for _, db := range clients {
		c.closers = append(c.closers, db.Close)
		pools = append(pools, rueidispool.NewPool(rueidiscompat.NewAdapter(db)))
	}
	c.rs = redsync.New(pools...)
	return c, nil
}

// rueidisClients connects to every node with rueidis and its defaults, but without the client-side
// cache, which locks do not need.
func rueidisClients(nodes []*node) ([]rueidis.Client, error) {
	var clients []rueidis.Client
	for _, n := range nodes {
		db, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{n.address()}, DisableCache: true})
		if err != nil {
			for _, db := range clients {
				db.Close()
			}
			return nil, fmt.Errorf("%s: %w", n.Name(), err)
		}
		clients = append(clients, db)
	}
	return clients, nil
}

func (c *redsyncContender) locker(int) locker            { return c }
func (c *redsyncContender) settle(context.Context) error { return nil } // redsync waits for every answer itself

func (c *redsyncContender) close() {
	for _, do := range c.closers {
		do()
	}
}

// lock retries until it is granted, with redsync's own delays.
func (c *redsyncContender) lock(ctx context.Context, name string, ttl time.Duration) (held, error) {
	m := c.rs.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt32))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncLock{m}, nil
}

type redsyncLock struct{ *redsync.Mutex }

func (l redsyncLock) Unlock(ctx context.Context) error { return answered(l.UnlockContext(ctx)) }
func (l redsyncLock) extend(ctx context.Context) error { return answered(l.ExtendContext(ctx)) }
func (l redsyncLock) until() time.Time                 { return l.Until() }

// answered turns redsync's two results into one.
func answered(ok bool, err error) error {
	if ok {
		return nil
	}
	return errors.Join(errNoQuorum, err)
}

var errNoQuorum = errors.New("no quorum of nodes agreed")
