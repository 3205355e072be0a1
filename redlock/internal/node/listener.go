package node

import (
	"context"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// Listen makes a connection on which the node calls the waiters of this process, and makes another
// one if it breaks, until ctx ends.
func (l *Lane) Listen(ctx context.Context) {
	backoff := firstBackoff
	for ctx.Err() == nil {
		listener, err := l.listen(ctx)
		if err == nil || redis.IsServerError(err) { // other errors are about the connection, and the lane has a connection too
			l.noteListening(err)
		}
		if err == nil {
			since := l.clock()
			l.serveListener(ctx, listener)
			if l.clock()-since >= heartbeat { // otherwise it would only break again
				backoff = firstBackoff
			}
		}
		pause(ctx, backoff/2+l.hooks.Jitter(l.node.Name+" listener", backoff/2+1))
		backoff = min(2*backoff, maxListenerBackoff)
	}
}

// maxListenerBackoff is long: locks work without a listener, but waiters are slower.
const maxListenerBackoff = heartbeat

// hostChannel is the beginning of the name of a channel, and of the key that shows that its process
// lives: see queue.lua.
const hostChannel = "redlockd:host:"

func (l *Lane) listen(ctx context.Context) (redis.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timing.handshake)
	defer cancel()
	return l.node.Listen(ctx, hostChannel+l.waiters.Host, l.heard)
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
