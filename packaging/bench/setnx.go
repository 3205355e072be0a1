package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// setnxContender locks on one Redis, as its documentation of SET shows: SET NX PX with a random
// value, and a release that compares the value first. It polls like redsync.
type setnxContender struct{ db *redis.Client }

func setnxAt(address string) *setnxContender {
	return &setnxContender{redis.NewClient(&redis.Options{Addr: address, PoolSize: connectionsEach})}
}

func (c *setnxContender) locker(int) locker            { return c }
func (c *setnxContender) settle(context.Context) error { return nil } // each call waits for its answer
func (c *setnxContender) close()                       { c.db.Close() }

func (c *setnxContender) lock(ctx context.Context, name string, ttl time.Duration) (held, error) {
	l := &setnxLock{db: c.db, name: name, token: rand.Text(), ttl: ttl}
	for {
		l.deadline = time.Now().Add(ttl)
		err := c.db.SetArgs(ctx, name, l.token, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
		if !errors.Is(err, redis.Nil) {
			return l, err
		}
		if err := pause(ctx, retryDelay()); err != nil {
			return nil, err
		}
	}
}

type setnxLock struct {
	db          *redis.Client
	name, token string
	ttl         time.Duration
	deadline    time.Time
}

var (
	setnxDelete = redis.NewScript(deleteOwnLua)
	setnxExtend = redis.NewScript(extendOwnLua)
)

func (l *setnxLock) Unlock(ctx context.Context) error { return l.own(ctx, setnxDelete) }

func (l *setnxLock) extend(ctx context.Context) error {
	deadline := time.Now().Add(l.ttl)
	if err := l.own(ctx, setnxExtend, l.ttl.Milliseconds()); err != nil {
		return err
	}
	l.deadline = deadline
	return nil
}

func (l *setnxLock) until() time.Time { return l.deadline }

// own runs one of the scripts.
func (l *setnxLock) own(ctx context.Context, script *redis.Script, args ...any) error {
	n, err := script.Run(ctx, l.db, []string{l.name}, append([]any{l.token}, args...)...).Int()
	if err == nil && n == 0 {
		err = fmt.Errorf("%s: the lock has expired", l.name)
	}
	return err
}
