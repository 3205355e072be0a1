package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// zookeeperLocker takes locks by the recipe of ZooKeeper's documentation: each client makes a
// sequential, ephemeral child of the lock, and watches the one before it that excludes it.
type zookeeperLocker struct {
	conn *zk.Conn
	held *zookeeperLock // of take
}

// The beginnings of a child's name, before its sequence number.
const (
	zookeeperWrite = "write-"
	zookeeperRead  = "read-"
)

// lock ignores ttl: all locks of a session end with its timeout.
func (l *zookeeperLocker) lock(ctx context.Context, name string, _ time.Duration) (held, error) {
	return l.acquire(ctx, name, zookeeperWrite)
}

func (l *zookeeperLocker) take(name string, shared bool, patience time.Duration) (err error) {
	ctx := context.Background()
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	kind := zookeeperWrite
	if shared {
		kind = zookeeperRead
	}
	l.held, err = l.acquire(ctx, name, kind)
	if ctx.Err() != nil {
		return errImpatient
	}
	return err
}

func (l *zookeeperLocker) drop(string) error { return l.held.Unlock(context.Background()) }

func (l *zookeeperLocker) acquire(ctx context.Context, name, kind string) (*zookeeperLock, error) {
	own, err := l.enter("/"+name, kind)
	if err != nil {
		return nil, err
	}
	lock := &zookeeperLock{l.conn, own}
	if err := l.wait(ctx, "/"+name, own[strings.LastIndex(own, "/")+1:]); err != nil {
		return nil, errors.Join(err, lock.Unlock(context.WithoutCancel(ctx)))
	}
	return lock, nil
}

// enter makes the child, and the lock itself if it is new. The library finds its child again if the
// answer was lost.
func (l *zookeeperLocker) enter(lock, kind string) (string, error) {
	for {
		own, err := l.conn.CreateProtectedEphemeralSequential(lock+"/"+kind, nil, zk.WorldACL(zk.PermAll))
		if !errors.Is(err, zk.ErrNoNode) {
			return own, err
		}
		if _, err := l.conn.CreateContainer(lock, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return "", err
		}
	}
}

// wait returns when no child before own excludes it. While the session connects to another server,
// it asks again.
func (l *zookeeperLocker) wait(ctx context.Context, lock, own string) error {
	for ctx.Err() == nil {
		gone, err := l.watch(lock, own)
		switch {
		case errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer):
			if err := pause(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		case err != nil:
			return err
		case gone == nil:
			return nil
		default:
			select {
			case <-gone:
			case <-ctx.Done():
			}
		}
	}
	return ctx.Err()
}

// watch returns a channel that has an event when the child that excludes own may have gone, or nil
// if there is none.
func (l *zookeeperLocker) watch(lock, own string) (<-chan zk.Event, error) {
	for {
		children, _, err := l.conn.Children(lock)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(children, own) {
			return nil, errors.New("the session has expired, and its child with it")
		}
		before := excluding(children, own)
		if before == "" {
			return nil, nil
		}
		exists, _, gone, err := l.conn.ExistsW(lock + "/" + before)
		if exists || err != nil {
			return gone, err
		}
	}
}

// excluding returns the last child before own that excludes it: of any kind for a writer, a writer
// for a reader; "" if there is none.
func excluding(children []string, own string) string {
	slices.SortFunc(children, func(a, b string) int { return cmp.Compare(sequence(a), sequence(b)) })
	last := ""
	for _, child := range children {
		if sequence(child) >= sequence(own) {
			break
		}
		if strings.Contains(own, zookeeperWrite) || strings.Contains(child, zookeeperWrite) {
			last = child
		}
	}
	return last
}

// sequence returns the number that ZooKeeper gave to a child: ten digits.
func sequence(child string) string { return child[max(0, len(child)-10):] }

// zookeeperLock is a child that is not excluded.
type zookeeperLock struct {
	conn *zk.Conn
	path string
}

// Unlock repeats the release while the session connects to another server.
func (l *zookeeperLock) Unlock(ctx context.Context) error {
	return persist(ctx, func() error {
		if err := l.conn.Delete(l.path, -1); !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		return nil
	})
}
