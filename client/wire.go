package client

import (
	"context"
	"errors"
	"strings"

	"github.com/redlockd/redlockd/ipc"
)

// ask makes a request about a name ("": none) with one more word ("": none),
// waits for the answer, and shows it to use if it is OK.
func (c *Client) ask(ctx context.Context, verb ipc.Verb, name, word string, use func(*call)) error {
	cl, err := c.begin(ctx, verb, name)
	if err != nil {
		return err
	}
	if name != "" {
		cl.req.Names = append(cl.req.Names, name)
	}
	if word != "" {
		cl.req.Words = append(cl.req.Words, word)
	}
	if err := c.roundTrip(ctx, cl); err != nil {
		return err
	}
	defer c.calls.put(cl)
	if cl.reply.Kind == ipc.KindErr {
		return cl.refusal()
	}
	use(cl)
	return nil
}

// begin is a call for a request with verb, which errors say is about name ("":
// none). It waits for a place if too many are in use, until ctx is done.
func (c *Client) begin(ctx context.Context, verb ipc.Verb, name string) (*call, error) {
	cl, err := c.calls.take(ctx, verb)
	if err != nil {
		return nil, ended(op(verb), name, ctx)
	}
	cl.name = name
	return cl, nil
}

// roundTrip sends a call's request and waits for the answer. On success that is
// in the call, which is the caller's to put back. Otherwise the call is gone:
// ctx was done first, and the answer is settled by the reader when it comes; or
// the connection is over.
func (c *Client) roundTrip(ctx context.Context, cl *call) error {
	verb, name := cl.req.Verb, cl.name
	cl.state.Store(waiting)
	err := c.out.send(&cl.req, verb == ipc.VerbUnlock)
	switch {
	case err != nil && !cl.state.CompareAndSwap(waiting, dead):
		<-cl.ready // the connection ended at the same time
	case err == nil && !c.await(ctx, cl):
		return ended(op(verb), name, ctx)
	case err == nil && cl.state.Load() == dead:
		err = c.Err()
	}
	if err != nil {
		c.calls.put(cl)
		return failed(op(verb), name, err)
	}
	return nil
}

// await reports whether the call was answered before ctx was done. If not, it
// is no longer the caller's.
func (c *Client) await(ctx context.Context, cl *call) bool {
	select {
	case <-cl.ready:
		return true
	case <-ctx.Done():
	}
	if !cl.state.CompareAndSwap(waiting, leaving) {
		<-cl.ready
		return true
	}
	if cl.locks() {
		c.cancel(cl.tag) // before the tag can be another's
	}
	if !cl.state.CompareAndSwap(leaving, left) {
		c.settle(cl) // answered in between
	}
	return false
}

// cancel gives up a request. It has no tag: its answer tells nothing that the
// request's own does not.
func (c *Client) cancel(tag string) {
	// An error means that the connection is over, which gives it up as well.
	_ = c.out.send(&ipc.Request{Verb: ipc.VerbCancel, Words: []string{tag}}, true)
}

// post sends a request that nobody waits for: the reader settles its answer.
func (c *Client) post(cl *call) {
	cl.state.Store(left)
	err := c.out.send(&cl.req, cl.req.Verb == ipc.VerbUnlock)
	if err != nil && cl.state.CompareAndSwap(left, dead) {
		c.settle(cl)
	}
}

// settle does what is left to do with the answer of a call that nobody waits for.
func (c *Client) settle(cl *call) {
	defer c.calls.put(cl)
	switch answer := cl.answer(); cl.req.Verb {
	case ipc.VerbLock, ipc.VerbTry:
		if answer != nil && cl.grants() {
			cl.lease.giveBack()
		}
	case ipc.VerbUnlock:
		cl.lease.settle(cl, answer)
	case ipc.VerbCheck, ipc.VerbExtend, ipc.VerbBeat:
		_ = cl.lease.told(cl, answer) // for nobody: the lease has learnt
	}
}

var (
	errNoCall = errors.New("a reply to no request")
	errFields = errors.New("a grant without its fields")
)

// hear does what a line from the daemon asks for. r is scratch space. An error
// means that the other side does not speak the protocol.
func (c *Client) hear(line []byte, r *ipc.Response) error {
	if err := ipc.ParseResponse(line, r); err != nil {
		return err
	}
	switch {
	case r.Kind == ipc.KindEvent:
		c.event(r)
		return nil
	case r.Tag == "":
		c.untagged(r)
		return nil
	}
	cl := c.calls.find(r.Tag)
	if cl == nil || !cl.inFlight() {
		return errNoCall
	}
	if r.Kind == ipc.KindLine {
		cl.lines = append(cl.lines, *r)
		*r = ipc.Response{}
		return nil
	}
	cl.reply, *r = *r, cl.reply // the fields' memory goes round
	if cl.grants() && !c.register(cl) {
		return errFields
	}
	c.deliver(cl, answered)
	return nil
}

// deliver ends the flight of a call: its caller has it again, or, where nobody
// waits, it is settled. It does nothing to a call that is not in flight.
func (c *Client) deliver(cl *call, how int32) {
	switch {
	case cl.state.CompareAndSwap(waiting, how):
		cl.ready <- struct{}{}
	case cl.state.CompareAndSwap(leaving, how): // its caller settles it
	case cl.state.CompareAndSwap(left, how):
		c.settle(cl)
	}
}

// register makes a granted lease known before anything else is read: the next
// line may be its loss.
func (c *Client) register(cl *call) bool {
	id := text(&cl.reply, "lease")
	if id == "" || duration(&cl.reply, "deadline") == 0 {
		return false
	}
	cl.lease.id = id
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases[id] = cl.lease
	return true
}

// forget ends the knowledge of a lease that is over.
func (c *Client) forget(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leases, l.id)
}

// event takes LOST and BYE. BACK changes nothing here, and others are of a later
// version.
func (c *Client) event(r *ipc.Response) {
	c.mu.Lock()
	l := c.leases[text(r, "lease")]
	c.bye = c.bye || r.Event == "BYE"
	c.mu.Unlock()
	if r.Event == "LOST" && l != nil {
		l.drop(lostBy(l.name, r))
	}
}

// untagged takes the daemon's reason for refusing the connection. Later on, what
// has no tag answers CANCEL, and tells nothing.
func (c *Client) untagged(r *ipc.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Kind == ipc.KindErr && !c.greeted {
		c.notice = refusal("connection", "", r)
	}
}

// op is what a verb is called in errors.
func op(verb ipc.Verb) string { return strings.ToLower(verb.String()) }
