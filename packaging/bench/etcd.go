package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// startEtcd starts servers with the defaults of etcd: each write is synced to the disk before its
// answer. A network between them, if any, delays their messages to each other, too.
func startEtcd(ctx context.Context, dir string, delays delays) (_ *cluster, err error) {
	clients, err := freeAddresses(serverCount)
	if err != nil {
		return nil, err
	}
	peers, err := freeAddresses(serverCount)
	if err != nil {
		return nil, err
	}
	c := &cluster{leader: etcdLeader(clients)}
	defer func() {
		if err != nil {
			c.kill()
		}
	}()
	if c.addresses, err = c.forward(dir, "etcd-clients", delays, clients); err != nil {
		return nil, err
	}
	seen, err := c.forward(dir, "etcd-peers", delays, peers)
	if err != nil {
		return nil, err
	}
	var members []string
	for i, address := range seen {
		members = append(members, fmt.Sprintf("s%d=http://%s", i, address))
	}
	for i := range serverCount {
		name := fmt.Sprintf("s%d", i)
		s, err := startChild(dir, "etcd-"+name, "etcd", "--name", name, "--data-dir", filepath.Join(dir, "etcd-data-"+name),
			"--listen-client-urls", "http://"+clients[i], "--advertise-client-urls", "http://"+c.addresses[i],
			"--listen-peer-urls", "http://"+peers[i], "--initial-advertise-peer-urls", "http://"+seen[i],
			"--initial-cluster", strings.Join(members, ","), "--initial-cluster-token", "bench")
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, s)
	}
	for i, s := range c.servers {
		if err := s.ready(startLimit, func() error { _, err := etcdStatus(ctx, clients[i]); return err }); err != nil {
			return nil, err
		}
	}
	_, err = c.leader(ctx)
	return c, err
}

// freeAddresses returns that many addresses on which nothing listens.
func freeAddresses(count int) (addresses []string, err error) {
	for range count {
		port, err := redlocktest.FreePort()
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return addresses, nil
}

// etcdLeader returns the number of the server that leads.
func etcdLeader(addresses []string) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		for i, address := range addresses {
			status, err := etcdStatus(ctx, address)
			if err != nil {
				return 0, err
			}
			if status.Leader == status.Header.MemberId {
				return i, nil
			}
		}
		return 0, errors.New("no etcd server leads")
	}
}

// etcdStatus returns an error unless the server has a leader.
func etcdStatus(ctx context.Context, address string) (*clientv3.StatusResponse, error) {
	c, err := dialEtcd([]string{address})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	status, err := c.Status(ctx, address)
	if err == nil && status.Leader == 0 {
		err = errors.New("it has no leader")
	}
	return status, err
}

func dialEtcd(addresses []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: addresses, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// etcdContender uses package concurrency of etcd's client. Two mutexes of one session do not
// exclude each other, so each worker has a session of its own, on one client.
type etcdContender struct {
	client *clientv3.Client

	mu       sync.Mutex
	sessions map[int]*concurrency.Session
}

func etcdAt(_ context.Context, addresses []string) (contender, error) {
	client, err := dialEtcd(addresses)
	if err != nil {
		return nil, err
	}
	return &etcdContender{client: client, sessions: map[int]*concurrency.Session{}}, nil
}

func (c *etcdContender) settle(context.Context) error { return nil } // each call waits for its answer

// close also ends the sessions, as the end of the process would after their ttl.
func (c *etcdContender) close() {
	for _, s := range c.sessions {
		s.Close()
	}
	c.client.Close()
}

func (c *etcdContender) locker(w int) locker { return etcdLocker{c, w} }

// session returns the session of a worker, with the lease time of its first lock.
func (c *etcdContender) session(w int, ttl time.Duration) (*concurrency.Session, error) {
	c.mu.Lock()
	s := c.sessions[w]
	c.mu.Unlock()
	if s != nil && !ended(s.Done()) {
		return s, nil
	}
	s, err := concurrency.NewSession(c.client, concurrency.WithTTL(int(ttl.Seconds())))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[w] = s
	return s, nil
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

type etcdLocker struct {
	*etcdContender
	worker int
}

func (l etcdLocker) lock(ctx context.Context, name string, ttl time.Duration) (held, error) {
	s, err := l.session(l.worker, ttl)
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s, name)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return etcdLock{m}, nil
}

type etcdLock struct{ *concurrency.Mutex }

// Unlock repeats the release while a new leader is elected. Otherwise the session would keep the
// lock.
func (l etcdLock) Unlock(ctx context.Context) error {
	return persist(ctx, func() error { return l.Mutex.Unlock(ctx) })
}

// persistence is how long a release that failed is repeated.
const persistence = 10 * time.Second

func persist(ctx context.Context, do func() error) error {
	for end := time.Now().Add(persistence); ; {
		err := do()
		if err == nil || time.Now().After(end) {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func etcdMissing() string {
	if _, err := exec.LookPath("etcd"); err != nil {
		return "etcd is not in the PATH (Debian: apt-get install etcd-server)"
	}
	return ""
}
