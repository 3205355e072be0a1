package redis

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// redisListener is a rueidis client that dialled once, and reads the messages of one channel.
type redisListener struct {
	client rueidis.Client
	conn   *guardedConn
	check  chan struct{} // of capacity 1: the connection may have broken
	broken chan struct{} // closed when watch has ended
	stop   context.CancelFunc
	done   sync.WaitGroup // the goroutine that receives
}

// listenRedis makes a connection that is subscribed to a channel. It passes each message to heard.
func listenRedis(ctx context.Context, o Options, channel string, heard func(message string)) (Listener, error) {
	client, conn, err := logIn(ctx, o, "redlockd-listener")
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(context.Background())
	l := &redisListener{client: client, conn: conn, check: make(chan struct{}, 1), broken: make(chan struct{}), stop: stop}
	err = l.subscribe(ctx, watching, channel, heard)
	if err == nil { // so that a missing right for watch shows now
		err = client.Do(ctx, client.B().Ping().Build()).Error()
	}
	if err != nil {
		close(l.broken)
		l.Close()
		return nil, &LoginError{Connect: conn.connectTime, Err: driverError(err, conn.password)}
	}
	go l.watch(watching) // it ends with the connection; Close waits for it
	return l, nil
}

// subscribe returns when the node has confirmed the subscription. Messages are received until
// watching ends.
func (l *redisListener) subscribe(ctx, watching context.Context, channel string, heard func(message string)) error {
	confirmed, ended := make(chan struct{}, 1), make(chan error, 1)
	watching = rueidis.WithOnSubscriptionHook(watching, func(rueidis.PubSubSubscription) {
		select {
		case confirmed <- struct{}{}:
		default: // the end of the subscription
		}
	})
	l.done.Go(func() {
		ended <- l.client.Receive(watching, l.client.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) { heard(m.Message) })
		select {
		case l.check <- struct{}{}:
		default: // a check is due already
		}
	})
	select {
	case <-confirmed:
		return nil
	case err := <-ended:
		return cmp.Or(err, errors.New("the subscription ended"))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A listener, on which no other commands are sent, pings at this interval, and the node must answer
// in time. Both are long, because a lost listener costs waiters time, and no more. A node that went
// down breaks the connection of its lane, too.
const (
	listenerPing   = 5 * time.Second
	listenerAnswer = 3 * time.Second
)

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
		answer, cancel := context.WithTimeout(ctx, listenerAnswer)
		err = l.client.Do(answer, l.client.B().Ping().Build()).Error()
		cancel()
	}
}

func (l *redisListener) Done() <-chan struct{} { return l.broken }

// Close first closes the network connection. Otherwise the driver would wait for a hung node.
func (l *redisListener) Close() {
	l.stop()
	l.conn.Close()
	l.client.Close()
	<-l.broken
	l.done.Wait()
}
