package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
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
	return redsyncAt(addressesOf(f.nodes)), nil
}

func redsyncAt(addresses []string) *redsyncContender {
	c := &redsyncContender{}
	var pools []redsyncredis.Pool
	for _, address := range addresses {
		db := redis.NewClient(&redis.Options{Addr: address, PoolSize: connectionsEach})
		c.closers = append(c.closers, func() { db.Close() })
		pools = append(pools, goredispool.NewPool(db))
	}
	c.rs = redsync.New(pools...)
	return c
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

// fanOut is a hand-written Redlock on a fast driver: a goroutine and a Do for each node. It goes on
// after the third answer. Only the driver groups commands, by pipelining. A release can overtake
// the acquire that it undoes, and then keys are left.
type fanOut struct {
	nodes []rueidis.Client
	late  sync.WaitGroup // calls whose answers are no longer awaited
}

// The scripts return 0 if the lock has another owner, or none.
const (
	deleteOwnLua = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`
	extendOwnLua = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE", KEYS[1], ARGV[2]) end return 0`
)

var (
	deleteOwn = rueidis.NewLuaScript(deleteOwnLua)
	extendOwn = rueidis.NewLuaScript(extendOwnLua)
)

func openFanOut(_ context.Context, f *fleet) (contender, error) {
	clients, err := rueidisClients(f.nodes)
	if err != nil {
		return nil, err
	}
	return &fanOut{nodes: clients}, nil
}

func (f *fanOut) locker(int) locker { return f }

// settle waits for the answers that were not awaited.
func (f *fanOut) settle(context.Context) error {
	f.late.Wait() // each call has a deadline
	return nil
}

func (f *fanOut) close() {
	for _, db := range f.nodes {
		db.Close()
	}
	f.late.Wait()
}

func (f *fanOut) lock(ctx context.Context, name string, ttl time.Duration) (held, error) {
	for {
		l := &fanOutLock{f: f, name: name, token: rand.Text(), ttl: ttl}
		if l.acquire(ctx) == nil {
			return l, nil
		}
		l.Unlock(ctx) // releases what the attempt took
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(retryDelay()):
		}
	}
}

// fanOutLock is one attempt and, if it was granted, the lock.
type fanOutLock struct {
	f           *fanOut
	name, token string
	ttl         time.Duration
	deadline    time.Time
}

func (l *fanOutLock) acquire(ctx context.Context) error {
	return l.renew(ctx, func(ctx context.Context, db rueidis.Client) bool {
		set := db.B().Set().Key(l.name).Value(l.token).Nx().Px(l.ttl).Build()
		return db.Do(ctx, set).Error() == nil // if it is not set, the answer is the null reply, an error here
	})
}

func (l *fanOutLock) extend(ctx context.Context) error {
	return l.renew(ctx, func(ctx context.Context, db rueidis.Client) bool {
		n, err := extendOwn.Exec(ctx, db, []string{l.name}, []string{l.token, strconv.FormatInt(l.ttl.Milliseconds(), 10)}).AsInt64()
		return err == nil && n == 1
	})
}

// renew asks all nodes for another ttl, which counts from before the requests.
func (l *fanOutLock) renew(ctx context.Context, ask func(context.Context, rueidis.Client) bool) error {
	deadline := time.Now().Add(l.ttl - l.ttl/100 - 2*time.Millisecond)
	if !l.f.majority(ctx, ask) || time.Now().After(deadline) {
		return errNoQuorum
	}
	l.deadline = deadline
	return nil
}

func (l *fanOutLock) until() time.Time { return l.deadline }

func (l *fanOutLock) Unlock(ctx context.Context) error {
	agreed := l.f.majority(ctx, func(ctx context.Context, db rueidis.Client) bool {
		n, err := deleteOwn.Exec(ctx, db, []string{l.name}, []string{l.token}).AsInt64()
		return err == nil && n == 1
	})
	if !agreed {
		return errNoQuorum
	}
	return nil
}

// majority asks all nodes at once and returns as soon as a quorum has agreed, or can no longer
// agree. The other calls have nodeTimeout to finish.
func (f *fanOut) majority(ctx context.Context, ask func(context.Context, rueidis.Client) bool) bool {
	c := &fanOutCall{answers: make(chan bool, len(f.nodes))}
	c.ctx, c.cancel = context.WithTimeout(context.WithoutCancel(ctx), nodeTimeout)
	c.waiting.Store(int32(len(f.nodes)))
	for _, db := range f.nodes {
		f.late.Go(func() { c.answer(ask(c.ctx, db)) })
	}
	return c.decide(len(f.nodes))
}

// fanOutCall is one request to all nodes.
type fanOutCall struct {
	ctx     context.Context
	cancel  context.CancelFunc // called after the last answer
	waiting atomic.Int32
	answers chan bool // room for all answers
}

func (c *fanOutCall) answer(yes bool) {
	c.answers <- yes
	if c.waiting.Add(-1) == 0 {
		c.cancel()
	}
}

// decide counts the answers of n nodes until a quorum has agreed, or can no longer agree.
func (c *fanOutCall) decide(n int) bool {
	yes, no := 0, 0
	for yes < quorum && no <= n-quorum {
		if <-c.answers {
			yes++
		} else {
			no++
		}
	}
	return yes >= quorum
}
