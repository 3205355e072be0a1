package redlock

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Request says which lock is wanted and how.
type Request struct {
	// Name is the lock. Or Names are several at once, all or none; Name is empty
	// then. They have one lease and one fencing token.
	Name  string
	Names []string

	// Shared: together with others who share it (readers), but with nobody else. A later
	// reader does not overtake a waiting writer.
	Shared bool
	// Slots, if more than 1: one of so many slots (a semaphore). A request for another
	// number of slots, or another kind of lock, is refused while a slot is taken. At most
	// MaxSlots, and for one name only.
	Slots int

	TTL time.Duration // how long the lease lasts unless extended; MinTTL to Options.MaxTTL

	// Wait is how long new attempts are begun. 0: one attempt only. Forever:
	// until it is granted or ctx is done.
	Wait time.Duration

	// NoQuorumFor is how long before this call no quorum of nodes answered, as far as the
	// caller knows. Acquire gives up without a quorum that much sooner.
	NoQuorumFor time.Duration

	// Held: another client holds the lock, as far as the caller knows. Then even the first
	// attempt listens for its release.
	Held bool
	// Yield: clients on other hosts wait for the lock, too, and it is their turn.
	Yield bool

	// Intent is what Intend returned for this request. May be nil.
	Intent *Intent

	// Pending is the first attempt, if Lease.HandOver has begun it. May be nil.
	Pending *PendingAttempt

	// StopRetrying ends an Acquire as if Wait had passed, once it is closed: no new attempt
	// begins, but the attempt under way is finished. Nil: only Wait and ctx end an Acquire.
	StopRetrying <-chan struct{}

	// BeforeAttempt is called before the first byte of each attempt is sent, also if
	// HandOver begins the attempt. The caller writes the Record down: if this process ends,
	// Abandon releases with it what the attempt took. It has no fencing token and no
	// deadline yet. The attempt waits for BeforeAttempt; if that never returns, nothing is
	// sent. HandOver also calls it before it passes a lock on without an attempt. Then
	// Record.Grant is not empty, and the lease keeps the Token of the lease before it. May
	// be nil.
	BeforeAttempt func(Record)

	// Failed is called with the error of every attempt that failed. It must not block. May
	// be nil.
	Failed func(error)

	// Keep: the lease is extended until it is released or lost. Otherwise it
	// ends after TTL.
	Keep bool

	// Block is how many fencing tokens the nodes reserve with the grant, the lease's own
	// included. Lease.HandOver can pass the lock on without asking a node while some of
	// them are left. 0 or 1: none is left. At most MaxBlock. For exclusive locks only.
	Block int

	// Guard is how long before the deadline the loss of the lease is reported. 0: TTL/5.
	Guard time.Duration

	// Max bounds the total holding time of a lease that is kept: the bound on
	// re-acquisitions that Redlock's authors ask for. 0: no bound.
	Max time.Duration

	// Holder describes the holder to other clients. Since is set by Acquire.
	Holder Holder

	// OnLost is called once if the lease is lost, on a goroutine of the
	// library's, at the instant at which Lost is closed. It must not block.
	OnLost func(*Lease)
}

// Forever is a Wait without end.
const Forever time.Duration = -1

// Guards are bounded so that a lease is not lost in the moment it is granted.
const (
	guardShare    = 5 // of the ttl, by default
	maxGuardShare = 2
)

// ErrRequest: the request itself is wrong, whatever the nodes say.
var ErrRequest = errors.New("bad request")

func (q *Quorum) check(r *Request) error {
	if r.Max != 0 {
		r.TTL = min(r.TTL, max(r.Max, MinTTL)) // nothing is kept on the nodes for longer than that
	}
	if err := q.checkLock(r); err != nil {
		return err
	}
	switch {
	case r.TTL < MinTTL || r.TTL > q.options.MaxTTL:
		return fmt.Errorf("redlock: %w: ttl %v of %v: must be between %v and %v", ErrRequest, r.TTL, r.lock(), MinTTL, q.options.MaxTTL)
	case r.Guard < 0 || r.Guard > r.TTL/maxGuardShare:
		return fmt.Errorf("redlock: %w: guard %v of %v: must be between 0 and half of the ttl, %v", ErrRequest, r.Guard, r.lock(), r.TTL/maxGuardShare)
	case r.Block < 0 || r.Block > MaxBlock:
		return fmt.Errorf("redlock: %w: a block of %d fencing tokens for %v: at most %d", ErrRequest, r.Block, r.lock(), MaxBlock)
	case r.Max != 0 && r.Max < MinTTL:
		return fmt.Errorf("redlock: %w: max %v of %v: at least %v, or 0 for no bound", ErrRequest, r.Max, r.lock(), MinTTL)
	}
	r.TTL = r.TTL.Truncate(time.Millisecond) // what the nodes are told
	r.Guard = min(r.Guard, r.TTL/maxGuardShare)
	return nil
}

// MaxSlots is how many places a semaphore may have.
const MaxSlots = 1000

// checkLock looks at what is wanted.
func (q *Quorum) checkLock(r *Request) error {
	names := r.Names
	if len(names) == 0 {
		one := [1]string{r.Name}
		names = one[:]
	}
	switch {
	case len(r.Names) > 0 && r.Name != "":
		return fmt.Errorf("redlock: %w: Name and Names are both there", ErrRequest)
	case slices.Contains(names, ""):
		return fmt.Errorf("redlock: %w: the lock has no name", ErrRequest)
	case r.Slots < 0 || r.Slots > MaxSlots:
		return fmt.Errorf("redlock: %w: %d slots of %v: at most %d", ErrRequest, r.Slots, r.lock(), MaxSlots)
	case r.Slots > 1 && (r.Shared || len(r.Names) > 1):
		return fmt.Errorf("redlock: %w: slots are of one name, and each is held by one", ErrRequest)
	}
	for i, name := range names {
		if q.options.Prefix+name == script.NodeKey {
			return fmt.Errorf("redlock: %w: %s is the nodes' own", ErrRequest, script.NodeKey)
		}
		if strings.Contains(name, script.Separator) {
			return fmt.Errorf("redlock: %w: a zero byte in %q", ErrRequest, name)
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("redlock: %w: %s is there twice", ErrRequest, name)
		}
	}
	return nil
}

// lock is what the request is about, for errors.
func (r *Request) lock() string {
	if len(r.Names) > 0 {
		return strings.Join(r.Names, ",")
	}
	return r.Name
}

// target is what the request is for.
func (q *Quorum) target(r *Request) target {
	t := target{prefix: int32(len(q.options.Prefix))}
	switch {
	case r.Shared:
		t.kind = script.KindShared
	case r.Slots > 1:
		t.kind = script.KindSlots + strconv.Itoa(r.Slots)
	}
	if len(r.Names) == 0 {
		t.key = q.options.Prefix + r.Name
		return t
	}
	t.key = q.options.Prefix + r.Names[0]
	for _, name := range r.Names[1:] {
		t.also = append(t.also, q.options.Prefix+name)
	}
	return t
}

// Intent keeps readers on other hosts from overtaking a writer that has to wait for readers
// on this host before it requests the lock.
type Intent struct {
	q      *Quorum
	target target
	waiter *node.Waiter
	r      Request
}

// Intend makes the nodes refuse new readers of the lock that r wants while others share it:
// for r.TTL from now on (half a second at least), or until the lock is taken or End. The
// nodes refuse all readers alike: use it only if no reader waits before the writer. The
// caller must pass the intent to Acquire (Request.Intent), or call End. Intend does not
// wait for the nodes.
func (q *Quorum) Intend(r Request) (*Intent, error) {
	if err := q.check(&r); err != nil {
		return nil, err
	}
	i := &Intent{q: q, target: q.target(&r), r: r}
	i.r.Holder.Since = q.options.Wall()
	i.waiter = q.waiters.Join(i.target.keys(), newToken(i.r.Holder), q.quorum)
	i.Renew()
	return i, nil
}

// Renew makes the intent last for r.TTL from now on.
func (i *Intent) Renew() {
	ops := i.target.each(nil, script.Operation{Op: script.IntendWrite, Token: i.waiter.ID, TTL: i.lasts()})
	i.q.call(node.Call{Op: "mark", Ops: ops, Placed: &i.waiter.Placed}, i.q.clock())
}

// End ends the intent. It is repeated on the nodes as a release is, until they have
// answered, or the intent has expired.
func (i *Intent) End() {
	i.q.waiters.Leave(i.waiter)
	now := i.q.clock()
	ops := i.target.each(nil, script.Operation{Op: script.EndWait, Token: i.waiter.ID})
	i.q.call(node.Call{Op: "done", Ops: ops, Placed: &i.waiter.Placed, Until: now + i.lasts() + drift(i.lasts())}, now)
}

// lasts returns how long the nodes remember the intent after each Renew.
func (i *Intent) lasts() time.Duration { return max(i.r.TTL, leastMark) }
