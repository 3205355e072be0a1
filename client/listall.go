package client

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// FleetLock is a lock that a client of any host holds or waits for, as ListAll and WhoWaits return it.
type FleetLock struct {
	Name string
	// Holders are the holders, as Who returns them. It is nil with Many.
	Holders []Holder
	// Many means that only Who lists the holders, because very many clients share the lock.
	Many bool
	// Wanted means that a client waits for the lock.
	Wanted bool
	// WaitingHosts lists the hosts of the clients that wait, in the order in which they get the lock,
	// as far as the nodes and this host's daemon know them.
	WaitingHosts []string
	// Waiting is for how long each of these hosts has waited.
	Waiting []time.Duration
	// Position is the position of this host among WaitingHosts, from 1; 0: it is not among them. Only
	// WhoWaits sets it.
	Position int
}

// setWaiters reads the hosts that wait.
func (l *FleetLock) setWaiters(r *ipc.Response) {
	l.WaitingHosts = r.Strings("waiting_hosts")
	l.Wanted = l.WaitingHosts != nil || text(r, "wanted") == "yes"
	l.Position = int(number(r, "position"))
	for _, ms := range r.Strings("waiting_ms") {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil {
			l.Waiting = append(l.Waiting, time.Duration(n)*time.Millisecond)
		}
	}
	if len(l.Waiting) != len(l.WaitingHosts) { // the answer is malformed
		l.Waiting = nil
	}
}

// LockPage is a part of the locks of all hosts.
type LockPage struct {
	Locks []FleetLock
	// Walked of Walks nodes were read to the end.
	Walked, Walks int
}

// ListAll returns the locks of all hosts that this user may inspect, page by page, as the nodes
// store them. A lock that is held during the whole call is returned once; others may be missing.
// The sequence ends with the first error. The error matches ErrNoQuorum if too few nodes answered.
// It matches ErrDenied if this user may inspect no lock, or if the nodes refuse SCAN to redlockd.
// The use of memory grows with the number of locks, by the length of their names.
func (c *Client) ListAll(ctx context.Context) iter.Seq2[LockPage, error] {
	return func(yield func(LockPage, error) bool) {
		seen := map[string]struct{}{}
		for from, more := "", true; more; more = from != "" {
			page, next, err := c.listPage(ctx, from)
			if err != nil {
				yield(LockPage{}, err)
				return
			}
			page.Locks = slices.DeleteFunc(page.Locks, func(l FleetLock) bool {
				_, known := seen[l.Name]
				seen[l.Name] = struct{}{}
				return known
			})
			if !yield(page, nil) {
				return
			}
			from = next
		}
	}
}

// rateWindow is the period of the daemon's requests_per_second.
const rateWindow = time.Second

// listPage requests a page. If the daemon limits the rate of requests, it waits for the next
// second.
func (c *Client) listPage(ctx context.Context, from string) (page LockPage, next string, err error) {
	for tries := 0; ; tries++ {
		page, next, err = c.askPage(ctx, from)
		if !errors.Is(err, ErrLimit) || tries == 3 {
			return page, next, err
		}
		select {
		case <-time.After(rateWindow):
		case <-ctx.Done():
			return page, "", contextError(op(ipc.VerbList), "", ctx)
		}
	}
}

func (c *Client) askPage(ctx context.Context, from string) (page LockPage, next string, err error) {
	cl := newCall(ipc.VerbList, "")
	cl.req.All = true
	cl.req.Set |= ipc.OptAll
	if from != "" {
		cl.req.From = from
		cl.req.Set |= ipc.OptFrom
	}
	if err := c.do(ctx, cl); err != nil {
		return page, "", err
	}
	for i := range cl.lines {
		page.add(&cl.lines[i])
	}
	page.Walked, page.Walks = int(number(&cl.reply, "walked")), int(number(&cl.reply, "walks"))
	return page, text(&cl.reply, "next"), nil
}

// add adds a line of the answer. Lines about the same lock follow each other.
func (p *LockPage) add(r *ipc.Response) {
	name := text(r, "lock")
	if n := len(p.Locks); n == 0 || p.Locks[n-1].Name != name {
		p.Locks = append(p.Locks, FleetLock{Name: name, Many: text(r, "many") == "yes"})
		p.Locks[n].setWaiters(r)
	}
	lock := &p.Locks[len(p.Locks)-1]
	if lock.Many {
		return
	}
	holder := holderOf(r)
	holder.Waits = text(r, "state") == "turn"
	lock.Holders = append(lock.Holders, holder)
}
