package redlock

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Request describes the lock to acquire, and how.
type Request struct {
	// Name is the name of the lock. To acquire several locks at once, all or none, leave it empty
	// and set Names. They have one lease and one fencing token.
	Name  string
	Names []string

	// Shared makes the client a reader: other readers can hold the lock at the same time, but no
	// writer. A later reader does not overtake a waiting writer.
	Shared bool
	// Slots, if more than 1, makes the lock a semaphore with this number of slots: the client
	// takes one of them. A request for another number of slots, or another kind of lock, is
	// refused while a slot is taken. At most MaxSlots, and for one name only.
	Slots int

	TTL time.Duration // how long the lease lasts unless extended; MinTTL to Options.MaxTTL

	// Wait is how long new attempts may begin. 0: one attempt only. Forever: until the lock is
	// granted or ctx is done.
	Wait time.Duration

	// Asked is when the client asked for the lock, on BootTime. It decides the position in the
	// nodes' wait queues. 0: when Acquire is called.
	Asked time.Duration

	// Held means that another client holds the lock, as far as the caller knows. Then even the
	// first attempt enters the nodes' wait queues, as it does if a request of this Quorum had to wait
	// for the lock within the last second. Otherwise the second one does, at once.
	Held bool
	// Yield leaves the lock free for a moment before the first attempt: for clients of other
	// libraries, which the nodes cannot call.
	Yield bool

	// Entry is the result of Enter for this request. May be nil.
	Entry *Entry

	// Pending is the first attempt, if Lease.HandOver has begun it. May be nil.
	Pending *PendingAttempt

	// StopRetrying ends an Acquire as if Wait had passed, once it is closed: no new attempt
	// begins, but the attempt in progress is finished. Nil: only Wait and ctx end an Acquire.
	StopRetrying <-chan struct{}

	// BeforeAttempt is called before the first byte of each attempt is sent, also if HandOver
	// begins the attempt. The caller stores the Record: if this process ends, Abandon can release
	// what the attempt took. The Record has no fencing token and no deadline yet. The attempt
	// waits for BeforeAttempt. If BeforeAttempt never returns, nothing is sent. HandOver also
	// calls it before it passes a lock on without an attempt. Then Record.Grant is not empty, and
	// the lease keeps the Token of the previous lease. May be nil.
	BeforeAttempt func(Record)

	// Failed is called with the error of each attempt that failed. It must not block. May be nil.
	Failed func(error)

	// Keep makes the keeper extend the lease until it is released or lost. Otherwise the lease
	// ends after TTL.
	Keep bool

	// Block is how many fencing tokens the nodes reserve with the grant, including the lease's
	// own. While some of them are left, Lease.HandOver can pass the lock on without asking a
	// node. 0 or 1: none is left. At most MaxBlock. For exclusive locks only.
	Block int

	// Guard is how long before the deadline the loss of the lease is reported. 0: TTL/5.
	Guard time.Duration

	// Max bounds the total time for which a lease with Keep is held. Redlock's authors ask for
	// such a bound on re-acquisitions. 0: no bound.
	Max time.Duration

	// Holder describes the holder to other clients. Since is set by Acquire.
	Holder Holder

	// OnLost is called once if the lease is lost, on a goroutine of the library, at the same time
	// as the channel of Lost is closed. It must not block.
	OnLost func(*Lease)
}

// Forever is a Wait without end.
const Forever time.Duration = -1

// Guards are bounded. Otherwise a lease could be lost as soon as it is granted.
const (
	guardShare    = 5 // of the ttl, by default
	maxGuardShare = 2
)

// ErrRequest means that the request itself is invalid, independent of the nodes.
var ErrRequest = errors.New("bad request")

func (q *Quorum) check(r *Request) error {
	if r.Max != 0 {
		r.TTL = min(r.TTL, max(r.Max, MinTTL)) // the nodes keep nothing for longer than that
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
	r.TTL = r.TTL.Truncate(time.Millisecond) // the unit on the nodes
	r.Guard = min(r.Guard, r.TTL/maxGuardShare)
	return nil
}

// MaxSlots is the largest number of slots of a semaphore.
const MaxSlots = 1000

// checkLock checks the fields that say which lock is requested.
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

// lock returns the lock's name for errors.
func (r *Request) lock() string {
	if len(r.Names) > 0 {
		return strings.Join(r.Names, ",")
	}
	return r.Name
}

// target returns the lock that is requested.
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
		t.otherKeys = append(t.otherKeys, q.options.Prefix+name)
	}
	return t
}

// asked returns when the client asked for the lock.
func (r *Request) asked(now time.Duration) time.Duration {
	if r.Asked == 0 {
		return now
	}
	return min(r.Asked, now)
}
