package node

import (
	"context"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// Listen makes a connection on which the node calls the waiters of this process, and makes another
// one if it breaks, until ctx ends. Locks work without it, but waiters are slower. So it waits for the
// lane's connection first. If that took long, many hosts connect to the node, and Listen lets them
// pass.
func (l *Lane) Listen(ctx context.Context) {
	retry := retry{first: 2 * l.timing.connect}
	jitter := func(n time.Duration) time.Duration { return l.hooks.Jitter(l.node.Name+" listener", n) }
	for ctx.Err() == nil {
		if !l.awaitConnection(ctx) {
			continue
		}
		pause(ctx, jitter(listenerSpread*time.Duration(l.loginTook.Load())+1))
		listener, err := l.listen(ctx, retry.loginLimit())
		if err == nil || redis.IsServerError(err) { // other errors are about the connection, and the lane has a connection too
			l.noteListening(err)
		}
		if err != nil {
			pause(ctx, retry.failed(err, jitter))
			continue
		}
		since := l.clock()
		l.serveListener(ctx, listener)
		pause(ctx, retry.broke(l.clock()-since, jitter))
	}
}

// listenerSpread is the time during which the listeners of a fleet connect, in multiples of the time
// that the lane took: at most a quarter of the node's time is spent on them.
const listenerSpread = 4

// awaitConnection waits until the lane has a connection. It reports whether the lane has one now.
func (l *Lane) awaitConnection(ctx context.Context) bool {
	l.mu.Lock()
	connected := l.isConnectedLocked()
	l.mu.Unlock()
	if connected {
		return true
	}
	select {
	case <-l.mayListen:
	case <-ctx.Done():
	}
	return false
}

// letListen wakes Listen if it waits for the lane's connection.
func (l *Lane) letListen() {
	select {
	case l.mayListen <- struct{}{}:
	default: // it will see that anyway
	}
}

// hostChannel is the beginning of the name of a channel, and of the key that shows that its process
// lives: see queue.lua.
const hostChannel = "redlockd:host:"

func (l *Lane) listen(ctx context.Context, limit time.Duration) (redis.Listener, error) {
	ctx, cancel := context.WithTimeout(redis.WithConnectLimit(ctx, l.timing.connect), limit)
	defer cancel()
	listener, err := l.node.Listen(ctx, hostChannel+l.waiters.Host, l.heard)
	if isAtNode(err) {
		err = &atNode{err}
	}
	return listener, err
}

// serveListener waits until the listener breaks. The node may have sent messages before it listened.
// If a listener breaks, the node may have been restarted, and the lane's connection may have broken
// with it: the lane finds out.
func (l *Lane) serveListener(ctx context.Context, listener redis.Listener) {
	defer listener.Close()
	l.listening.Store(true)
	defer l.listening.Store(false)
	l.waiters.missed(l.hooks.Jitter)
	select {
	case <-listener.Done():
		l.pingNow.Store(true)
		l.Wake()
	case <-ctx.Done():
	}
}

// noteListening records why the node does not call waiters; nil: it does.
func (l *Lane) noteListening(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listenErr = err
}
