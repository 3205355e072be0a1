package redlock

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Record is all that another process on the same host, since the same boot, needs to
// go on with a lease ([Quorum.Adopt]), or to give back what an attempt may have taken
// ([Quorum.Abandon]). Whoever keeps it keeps a secret: the token.
//
// Deadline, End and Since are instants on BootTime, which another boot counts anew.
type Record struct {
	Names  []string // of the lock, without Options.Prefix
	Shared bool
	Slots  int    // how many places a semaphore has; 0: it is none
	Slot   int    // which of them it is, from 1 on; 0: it is none
	Token  string // as the nodes keep it: the place goes before it
	Fence  uint64 // of an attempt: 0
	TTL    time.Duration
	Guard  time.Duration // as in Request
	Keep   bool          // as in Request

	Deadline time.Duration // of an attempt: 0, as End and Since are
	End      time.Duration // that no deadline passes (Request.Max); 0: no bound
	Since    time.Duration // the grant

	Lost LostReason // it was lost, and why; "": it is held, as far as is known
}

// ID is Lease.ID of it; "" where there is no token.
func (r *Record) ID() string {
	_, token := splitMember(r.Token)
	return token[:min(tokenID, len(token))]
}

// ErrRecord: a Record is not one that this package made, or not for a Quorum with
// these options, or of another boot.
var ErrRecord = errors.New("bad record")

// Record is what the lease is now. Its deadline moves: see Options.Moved and Aged.
func (l *Lease) Record() Record {
	r := l.target.record()
	r.Token, r.Fence, r.Guard, r.End, r.Since = l.token, l.fence, l.guard, l.end, l.since
	l.mu.Lock()
	defer l.mu.Unlock()
	r.TTL, r.Deadline, r.Keep = l.ttl, l.deadline, l.kept
	if l.state == lost {
		r.Lost = l.reason
	}
	return r
}

// record is what the attempt is about to take.
func (a *attempt) record() Record {
	r := a.target.record()
	r.Token, r.TTL, r.Guard, r.Keep = a.token, a.r.TTL, a.r.Guard, a.r.Keep
	return r
}

// record is only what the target is.
func (t *target) record() Record {
	return Record{Names: t.names(), Shared: t.kind == script.KindShared, Slots: script.SlotsOf(t.kind), Slot: int(t.slot)}
}

// request is what was asked for, as far as it says which lock.
func (r *Record) request() Request {
	return Request{Names: r.Names, Shared: r.Shared, Slots: r.Slots}
}

// targetOf is what a record is of. An error matches ErrRecord: there is no such lock,
// or nobody can have that token of it.
func (q *Quorum) targetOf(r *Record) (target, error) {
	wish := r.request()
	if err := q.checkLock(&wish); err != nil {
		return target{}, r.bad("%v", err)
	}
	place, token := splitMember(r.Token)
	switch {
	case r.Slots == 1 || r.Slot < 0 || r.Slot > r.Slots || (r.Slot == 0) != (r.Slots == 0):
		return target{}, r.bad("place %d of %d", r.Slot, r.Slots)
	case place != r.Slot:
		return target{}, r.bad("its token is of place %d, and it of %d", place, r.Slot)
	case !isToken(token):
		return target{}, r.bad("its token is none of this program's")
	}
	t := q.target(&wish)
	t.slot = int32(r.Slot)
	return t, nil
}

// checkLease checks what is granted, against the time now. The error matches
// ErrRecord, and says which lock, and what.
func (q *Quorum) checkLease(r *Record, now time.Duration) error {
	longest := q.options.MaxTTL
	switch {
	case r.TTL < MinTTL || r.TTL > longest:
		return r.bad("ttl %v: must be between %v and the max_ttl of now, %v; its lock is free when it has expired on the nodes", r.TTL, MinTTL, longest)
	case r.TTL%time.Millisecond != 0:
		return r.bad("ttl %v: not whole milliseconds", r.TTL)
	case r.Guard < 0 || r.Guard > r.TTL/maxGuardShare:
		return r.bad("guard %v: must be between 0 and half of the ttl, %v", r.Guard, r.TTL/maxGuardShare)
	case !script.IsFence(r.Fence):
		return r.bad("fencing token %d: must be between 1 and %d", r.Fence, uint64(script.MaxFence))
	case r.Since <= 0 || r.Since > now:
		return r.bad("granted at %v, and this host was booted %v ago: of another boot?", r.Since, now)
	case r.Deadline <= 0 || r.Deadline > now+longest: // a ttl that was made shorter leaves a deadline where it was
		return r.bad("deadline %v from now: more than the max_ttl of %v", r.Deadline-now, longest)
	case r.End != 0 && (r.End <= r.Since || r.Deadline > r.End):
		return r.bad("to be held from %v until %v at most, and its deadline is %v", r.Since, r.End, r.Deadline)
	}
	return nil
}

func (r *Record) bad(format string, args ...any) error {
	return fmt.Errorf("redlock: %w: of a lease of %s: %s", ErrRecord, strings.Join(r.Names, ","), fmt.Sprintf(format, args...))
}

// isToken tells whether newToken can have returned it.
func isToken(token string) bool {
	if !holderOf(token).Known() || !utf8.ValidString(token) {
		return false
	}
	if _, err := base64.RawURLEncoding.DecodeString(token[:tokenID]); err != nil {
		return false
	}
	return strings.IndexFunc(token, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}
