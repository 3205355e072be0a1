package node

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// Listen makes a connection on which the node reports released locks, and makes another one if it
// breaks, until ctx ends.
func (l *Lane) Listen(ctx context.Context) {
	backoff := firstBackoff
	for ctx.Err() == nil {
		listener, err := l.listen(ctx)
		if redis.IsServerError(err) { // other errors are about the connection, and the lane has a connection too
			l.noteTracking("to listen", err)
		}
		if err == nil {
			since := l.clock()
			l.serveListener(ctx, listener)
			if l.clock()-since >= heartbeat { // otherwise it would only break again
				backoff = firstBackoff
			}
		}
		pause(ctx, backoff/2+l.rules.Jitter(l.node.Name+" hearer", backoff/2+1))
		backoff = min(2*backoff, maxListenerBackoff)
	}
}

// maxListenerBackoff is long: locks work without a listener, but waiters are slower.
const maxListenerBackoff = heartbeat

// noteTracking records why the node does not report changes; nil: it does.
func (l *Lane) noteTracking(what string, err error) {
	if err != nil {
		err = fmt.Errorf("it does not notify waiters when a lock is released, so they ask at intervals: %s: %w", what, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trackingErr = err
}

func (l *Lane) listen(ctx context.Context) (redis.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timing.handshake)
	defer cancel()
	return l.node.Listen(ctx, func(keys []string) { l.waiters.keysChanged(l.index, keys) })
}

// serveListener lets the lane name the listener to the node, until the listener breaks. Then any
// key may have changed.
func (l *Lane) serveListener(ctx context.Context, listener redis.Listener) {
	defer listener.Close()
	l.listenerID.Store(listener.ID())
	l.Wake()
	select {
	case <-listener.Done():
	case <-ctx.Done():
	}
	l.listenerID.Store(0)
	l.stopTracking()
}

// stopTracking records that the node has forgotten what it tracked, because one of the
// connections ended. All waiters retry.
func (l *Lane) stopTracking() {
	if l.tracking.Swap(false) {
		l.waiters.keysChanged(l.index, nil)
	}
}

// track asks the node to report changes of the keys that are read with CLIENT CACHING YES, if
// there is a listener. It reads the key that the node last refused to track, so that the status
// is right before the next client waits.
func (l *Lane) track(ctx context.Context, conn redis.Conn) error {
	listenerID := l.listenerID.Load()
	if listenerID == l.session.listenerID {
		return nil
	}
	l.stopTracking() // for the previous listener: serveListener may have been a moment too early for it
	l.trip.commands = l.trip.commands[:0]
	l.appendCommand("CLIENT", "TRACKING", "OFF")
	if listenerID != 0 {
		l.appendCommand("CLIENT", "TRACKING", "ON", "REDIRECT", strconv.FormatInt(listenerID, 10), "OPTIN")
	}
	if listenerID != 0 && l.untrackedKey != "" {
		l.appendCommand("CLIENT", "CACHING", "YES")
		l.appendCommand("MGET", l.untrackedKey)
	}
	if err := l.roundTrip(ctx, conn); err != nil {
		return err
	}
	l.session.listenerID = listenerID
	var refused error
	for _, reply := range l.trip.replies[1:] {
		refused = cmp.Or(refused, reply.Err)
	}
	if listenerID != 0 {
		l.noteTracking("CLIENT TRACKING, CLIENT CACHING and MGET", refused)
	}
	l.tracking.Store(listenerID != 0 && refused == nil && l.listenerID.Load() == listenerID)
	return nil
}

// appendSubscriptions reads the keys that the calls listen to, after the calls. From then on the
// node reports a release. If a release came before that, the wake-up key is missing.
func (l *Lane) appendSubscriptions(group []Call) {
	l.trip.subscriptions = l.trip.subscriptions[:0]
	if !l.tracking.Load() {
		return
	}
	for i := range group {
		if group[i].Subscription != nil {
			l.trip.subscriptions = append(l.trip.subscriptions, group[i].Subscription)
			group[i].Subscription.asked.Add(l.index)
		}
	}
	if len(l.trip.subscriptions) == 0 {
		return
	}
	l.appendCommand("CLIENT", "CACHING", "YES")
	read := l.appendCommand("MGET")
	for _, a := range l.trip.subscriptions {
		*read = append(*read, a.keys...)
	}
}

// readSubscriptions passes the values that were read to the waiters, except for the last
// subscriptions (unexecuted), whose calls the node did not execute. replies are all replies after
// those to the calls. An error means that the node's answer is malformed.
func (l *Lane) readSubscriptions(replies []redis.Reply, unexecuted int) (rest []redis.Reply, err error) {
	if len(l.trip.subscriptions) == 0 {
		return replies, nil
	}
	unexecuted = min(unexecuted, len(l.trip.subscriptions))
	keys := 0
	for _, a := range l.trip.subscriptions {
		keys += len(a.keys)
	}
	if err := checkValues(&replies[1], keys); err != nil {
		return nil, err
	}
	values := replies[1].Array
	if replies[0].Err != nil || replies[1].Err != nil {
		l.tracking.Store(false) // until the next heartbeat
		l.untrackedKey = l.trip.subscriptions[0].keys[0]
		l.noteTracking("CLIENT CACHING and MGET", cmp.Or(replies[0].Err, replies[1].Err))
	}
	for _, a := range l.trip.subscriptions[:len(l.trip.subscriptions)-unexecuted] {
		n := min(len(a.keys), len(values))
		a.note(l.index, l.rules.WasReleased(values[:n]))
		values = values[n:]
	}
	clear(l.trip.subscriptions)
	clear(replies[1].Array)
	return replies[2:], nil
}

// countSubscriptions returns how many of the calls listen to keys.
func countSubscriptions(calls []Call) (n int) {
	for i := range calls {
		if calls[i].Subscription != nil {
			n++
		}
	}
	return n
}

// checkValues checks the answer to an MGET of the given number of keys.
func checkValues(reply *redis.Reply, keys int) error {
	if reply.Err != nil {
		return nil
	}
	if !reply.IsList() || len(reply.Array) != keys {
		return redis.UnexpectedAnswer("MGET", fmt.Sprintf("a list of %d", keys), reply)
	}
	for i := range reply.Array {
		if value := &reply.Array[i]; value.Err != nil || !value.Nil && !value.IsText() {
			return redis.UnexpectedAnswer("MGET", "strings", value)
		}
	}
	return nil
}
