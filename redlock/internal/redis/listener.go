package redis

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"
)

// redisListener is a rueidis client that dialled once, and reads the messages that the
// node sends without a question.
type redisListener struct {
	client rueidis.Client
	dialer *onceDialer
	id     int64
	check  chan struct{} // of capacity 1: it may have broken
	broken chan struct{} // closed when watch has ended
	stop   context.CancelFunc

	flushes int       // that were heard since then; both belong to the driver's reader
	since   time.Time // listenerPing at most
}

// maxFlushes is how often within a listenerPing all keys may be said to have changed:
// each time all who wait ask all nodes.
const maxFlushes = 20

// listenRedis makes a connection that invalidations can be redirected to. A server
// that has no RESP3 or no CLIENT ID cannot do that.
func listenRedis(ctx context.Context, o Options, heard func(keys []string)) (Listener, error) {
	option, dialer, err := clientOption(ctx, o)
	if err != nil {
		return nil, err
	}
	l := &redisListener{dialer: dialer, check: make(chan struct{}, 1), broken: make(chan struct{})}
	watching, end := context.WithCancel(context.Background())
	l.stop = end
	option.ClientName = "redlockd-listener"
	option.OnInvalidations = func(keys []rueidis.RedisMessage) { l.invalidated(keys, heard) }
	stop := context.AfterFunc(ctx, dialer.close) // the driver's log-in knows no context
	l.client, err = rueidis.NewClient(option)
	if err == nil {
		l.id, err = l.client.Do(ctx, l.client.B().ClientId().Build()).AsInt64()
	}
	if err == nil { // what watch needs shows now
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

// invalidated is called with nothing where all keys were flushed, and also where
// the connection breaks.
func (l *redisListener) invalidated(messages []rueidis.RedisMessage, heard func(keys []string)) {
	if messages == nil {
		if l.floods() {
			l.dialer.close()
			return
		}
		heard(nil)
		select {
		case l.check <- struct{}{}:
		default: // it is about to
		}
		return
	}
	keys := make([]string, 0, len(messages))
	for i := range messages {
		if key, err := messages[i].ToString(); err == nil {
			keys = append(keys, key)
		}
	}
	heard(keys)
}

// floods tells whether it is said all the time that everything may have changed.
func (l *redisListener) floods() bool {
	if now := time.Now(); now.Sub(l.since) > listenerPing {
		l.since, l.flushes = now, 0
	}
	l.flushes++
	return l.flushes > maxFlushes
}

// listenerPing is how often a listener, which is never asked anything else, is
// asked whether it is still there.
const listenerPing = time.Second

// watch notices that the connection has broken, or that the node is silent for too
// long, until ctx ends.
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

// Close cuts the network first: the driver would wait for a hung node otherwise.
func (l *redisListener) Close() {
	l.stop()
	l.dialer.close()
	if l.client != nil {
		l.client.Close()
	}
	<-l.broken
}
