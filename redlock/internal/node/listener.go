package node

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// hear has the node tell which locks were given back, on a connection of its own,
// and connects again where that breaks, until ctx ends.
func (l *Lane) Hear(ctx context.Context) {
	backoff := firstBackoff
	for ctx.Err() == nil {
		listener, err := l.listen(ctx)
		if redis.IsServerError(err) { // others concern the connection, and the lane has one, too
			l.noteMute("to listen", err)
		}
		if err == nil {
			since := l.clock()
			l.attend(ctx, listener)
			if l.clock()-since >= heartbeat { // else it would only break again
				backoff = firstBackoff
			}
		}
		pause(ctx, backoff/2+l.rules.Jitter(l.node.Name+" hearer", backoff/2+1))
		backoff = min(2*backoff, longestHearerBackoff)
	}
}

// longestHearerBackoff: without it locks work, but who waits is slower.
const longestHearerBackoff = heartbeat

// noteMute remembers why the node does not tell what has changed; nil: it does.
func (l *Lane) noteMute(what string, err error) {
	if err != nil {
		err = fmt.Errorf("it does not tell when a lock is given back, so who waits for one asks again and again: %s: %w", what, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mute = err
}

func (l *Lane) listen(ctx context.Context) (redis.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timing.handshake)
	defer cancel()
	return l.node.Listen(ctx, func(keys []string) { l.waiters.heard(l.index, keys) })
}

// attend has the lane name the listener to the node, until it breaks. What was
// listened to before may have changed.
func (l *Lane) attend(ctx context.Context, listener redis.Listener) {
	defer listener.Close()
	l.hearer.Store(listener.ID())
	l.Stir()
	select {
	case <-listener.Done():
	case <-ctx.Done():
	}
	l.hearer.Store(0)
	l.hearNoMore()
}

// hearNoMore: what the node tracked is forgotten, with the one connection or the
// other. Whoever listens has to do so again.
func (l *Lane) hearNoMore() {
	if l.tracking.Swap(false) {
		l.waiters.heard(l.index, nil)
	}
}

// track has the node tell what has changed of what is read with CLIENT CACHING YES,
// if there is somebody to tell it to. Whether that may be read again which it refused
// shows at once, and not when the next one waits.
func (l *Lane) track(ctx context.Context, conn redis.Conn) error {
	hearer := l.hearer.Load()
	if hearer == l.session.hearer {
		return nil
	}
	l.hearNoMore() // of the listener of before: attend may have been a moment too early for it
	l.commands = l.commands[:0]
	l.appendCommand("CLIENT", "TRACKING", "OFF")
	if hearer != 0 {
		l.appendCommand("CLIENT", "TRACKING", "ON", "REDIRECT", strconv.FormatInt(hearer, 10), "OPTIN")
	}
	if hearer != 0 && l.mutedAt != "" {
		l.appendCommand("CLIENT", "CACHING", "YES")
		l.appendCommand("MGET", l.mutedAt)
	}
	if err := l.roundTrip(ctx, conn); err != nil {
		return err
	}
	l.session.hearer = hearer
	var refused error
	for _, reply := range l.replies[1:] {
		refused = cmp.Or(refused, reply.Err)
	}
	if hearer != 0 {
		l.noteMute("CLIENT TRACKING, CLIENT CACHING and MGET", refused)
	}
	l.tracking.Store(hearer != 0 && refused == nil && l.hearer.Load() == hearer)
	return nil
}

// appendArming has the node read what the calls listen to, behind them: a release
// from now on is told, and one that came since they were refused has left the bell
// missing. It returns who is to be told what was read.
func (l *Lane) appendArming(group []Call) {
	l.armed = l.armed[:0]
	if !l.tracking.Load() {
		return
	}
	for i := range group {
		if group[i].Arming != nil {
			l.armed = append(l.armed, group[i].Arming)
			group[i].Arming.asked.Add(l.index)
		}
	}
	if len(l.armed) == 0 {
		return
	}
	l.appendCommand("CLIENT", "CACHING", "YES")
	read := l.appendCommand("MGET")
	for _, a := range l.armed {
		*read = append(*read, a.keys...)
	}
}

// readArming hands out what was read, but for the last so many: their calls were not
// executed. replies are all that come behind the calls. An error: the node's answer is not
// one.
func (l *Lane) readArming(replies []redis.Reply, unexecuted int) (rest []redis.Reply, err error) {
	if len(l.armed) == 0 {
		return replies, nil
	}
	unexecuted = min(unexecuted, len(l.armed))
	keys := 0
	for _, a := range l.armed {
		keys += len(a.keys)
	}
	if err := checkValues(&replies[1], keys); err != nil {
		return nil, err
	}
	values := replies[1].Array
	if replies[0].Err != nil || replies[1].Err != nil {
		l.tracking.Store(false) // until the next heartbeat
		l.mutedAt = l.armed[0].keys[0]
		l.noteMute("CLIENT CACHING and MGET", cmp.Or(replies[0].Err, replies[1].Err))
	}
	for _, a := range l.armed[:len(l.armed)-unexecuted] {
		n := min(len(a.keys), len(values))
		a.read(l.index, l.rules.HasRung(values[:n]))
		values = values[n:]
	}
	clear(l.armed)
	clear(replies[1].Array)
	return replies[2:], nil
}

// armings returns how many of the calls listen to keys.
func armings(calls []Call) (n int) {
	for i := range calls {
		if calls[i].Arming != nil {
			n++
		}
	}
	return n
}
