package redis

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"
)

// redisListener is a rueidis client that dialled once, and reads the messages that the node sends
// without a question.
type redisListener struct {
	client rueidis.Client
	dialer *onceDialer
	id     int64
	check  chan struct{} // of capacity 1: the connection may have broken
	broken chan struct{} // closed when watch has ended
	stop   context.CancelFunc

	flushes int       // since since; only the driver's reader uses these two fields
	since   time.Time // at most listenerPing ago
}

// maxFlushes is how often the node may report within a listenerPing that all keys may have
// changed. Each time, all waiters ask all nodes.
const maxFlushes = 20

// listenRedis makes a connection to which invalidations can be redirected. A server without RESP3
// or CLIENT ID does not support that.
func listenRedis(ctx context.Context, o Options, onInvalidation func(keys []string)) (Listener, error) {
	option, dialer, err := clientOption(ctx, o)
	if err != nil {
		return nil, err
	}
	l := &redisListener{dialer: dialer, check: make(chan struct{}, 1), broken: make(chan struct{})}
	watching, end := context.WithCancel(context.Background())
	l.stop = end
	option.ClientName = "redlockd-listener"
	option.OnInvalidations = func(keys []rueidis.RedisMessage) { l.invalidated(keys, onInvalidation) }
	stop := context.AfterFunc(ctx, dialer.close) // the driver's log-in uses no context
	l.client, err = rueidis.NewClient(option)
	if err == nil {
		l.id, err = l.client.Do(ctx, l.client.B().ClientId().Build()).AsInt64()
	}
	if err == nil { // so that a missing right for watch shows now
		err = l.client.Do(ctx, l.client.B().Ping().Build()).Error()
	}
	if !stop() {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		close(l.broken)
		l.Close()
		return nil, loginError(err, option.Password)
	}
	go l.watch(watching) // it ends with the connection; Close waits for it
	return l, nil
}

// invalidated is called with nil if all keys were flushed, and also if the connection breaks.
func (l *redisListener) invalidated(messages []rueidis.RedisMessage, onInvalidation func(keys []string)) {
	if messages == nil {
		if l.floods() {
			l.dialer.close()
			return
		}
		onInvalidation(nil)
		select {
		case l.check <- struct{}{}:
		default: // a check is due already
		}
		return
	}
	keys := make([]string, 0, len(messages))
	for i := range messages {
		if key, err := messages[i].ToString(); err == nil {
			keys = append(keys, key)
		}
	}
	onInvalidation(keys)
}

// floods reports whether the node reports all the time that all keys may have changed.
func (l *redisListener) floods() bool {
	if now := time.Now(); now.Sub(l.since) > listenerPing {
		l.since, l.flushes = now, 0
	}
	l.flushes++
	return l.flushes > maxFlushes
}

// listenerPing is the time between two pings of a listener, on which no other commands are sent.
const listenerPing = time.Second

// watch notices that the connection has broken, or that the node is silent for too long, until
// ctx ends.
func (l *redisListener) watch(ctx context.Context) {
	defer close(l.broken)
	ping := time.NewTicker(listenerPing)
	defer ping.Stop()
	for err := error(nil); err == nil && ctx.Err() == nil; {
		select {
		case <-ping.C:
		case <-l.check:
		case <-ctx.Done():
		}
		answer, cancel := context.WithTimeout(ctx, 3*listenerPing)
		err = l.client.Do(answer, l.client.B().Ping().Build()).Error()
		cancel()
	}
}

func (l *redisListener) ID() int64             { return l.id }
func (l *redisListener) Done() <-chan struct{} { return l.broken }

// Close first closes the network connection. Otherwise the driver would wait for a hung node.
func (l *redisListener) Close() {
	l.stop()
	l.dialer.close()
	if l.client != nil {
		l.client.Close()
	}
	<-l.broken
}
