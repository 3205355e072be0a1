//go:build linux

package e2e

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// book records which client holds which lock. A client records a grant after it has read the
// answer, and the release before it sends UNLOCK. So if the book shows two holders of a lock, both
// really held it at once.
type book struct {
	fault func(format string, args ...any)

	mu             sync.Mutex // guards the fields below
	pages          map[string]*page
	grants, handed int
}

// page is one lock.
type page struct {
	holder   string // empty: no holder
	before   string // the previous holder
	lease    string
	fence    int64
	deadline time.Duration // the last stated deadline, on CLOCK_BOOTTIME
}

func newBook(fault func(format string, args ...any)) *book {
	return &book{fault: fault, pages: map[string]*page{}}
}

// granted records the answer to a LOCK, and reports whether the client holds the lock.
func (b *book) granted(client, lock, answer string) bool {
	if !strings.HasPrefix(answer, "OK lock=") {
		if answer != "" {
			b.fault("%s: LOCK %s: %s", client, lock, answer)
		}
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.page(lock)
	fence, deadline := fields(answer)
	switch {
	case p.holder != "":
		b.fault("%s: two hold %s: %s was granted it and has not given it back, now: %s", client, lock, p.holder, answer)
	case sinceBoot() < p.deadline:
		b.fault("%s: two hold %s: it was lost, and its deadline is not over: %s", client, lock, answer)
	case fence <= p.fence:
		b.fault("%s: %s: the fencing token was %d before: %s", client, lock, p.fence, answer)
	}
	b.grants++
	if p.before != client && p.before != "" {
		b.handed++
	}
	*p = page{holder: client, before: client, lease: field(answer, "lease"), fence: fence, deadline: deadline}
	return true
}

// checked records the answer to a CHECK of the holder.
func (b *book) checked(client, lock, answer string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.page(lock)
	fence, deadline := fields(answer)
	switch {
	case answer == "":
	case !strings.HasPrefix(answer, "OK lock="):
		b.fault("%s: CHECK %s: %s", client, lock, answer)
	case p.holder != client || field(answer, "lease") != p.lease || fence != p.fence:
		b.fault("%s: CHECK %s: held by %q with lease %s and fencing token %d, got %s", client, lock, p.holder, p.lease, p.fence, answer)
	case deadline <= sinceBoot()-3*forgotten: // the answer may have waited behind many others
		b.fault("%s: CHECK %s: the deadline is over (now %d): %s", client, lock, sinceBoot().Milliseconds(), answer)
	default:
		p.deadline = max(p.deadline, deadline)
	}
}

// release is called before UNLOCK is sent.
func (b *book) release(client, lock string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.page(lock)
	if p.holder != client {
		b.fault("%s: UNLOCK %s: held by %q", client, lock, p.holder)
	}
	p.holder, p.deadline = "", 0
}

// lost: until the deadline no other client may get the lock.
func (b *book) lost(client, lock string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.page(lock); p.holder == client {
		p.holder = ""
	}
}

// page returns the page of a lock. The caller holds mu.
func (b *book) page(lock string) *page {
	if b.pages[lock] == nil {
		b.pages[lock] = &page{}
	}
	return b.pages[lock]
}

func (b *book) counts() (grants, handed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.grants, b.handed
}

func fields(answer string) (fence int64, deadline time.Duration) {
	fence, _ = strconv.ParseInt(field(answer, "fence"), 10, 64)
	ms, _ := strconv.ParseInt(field(answer, "deadline"), 10, 64)
	return fence, time.Duration(ms) * time.Millisecond
}

func sinceBoot() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // exists since Linux 2.6.39
	return time.Duration(now.Nano())
}

// The book reports violations.
func TestBook(t *testing.T) {
	later := strconv.FormatInt((sinceBoot() + time.Hour).Milliseconds(), 10)
	grant := func(lease, fence string) string {
		return "OK lock=a lease=" + lease + " fence=" + fence + " ttl=1 deadline=" + later
	}
	for want, script := range map[string]func(*book){
		"": func(b *book) {
			b.granted("x", "a", grant("1", "5"))
			b.checked("x", "a", grant("1", "5"))
			b.release("x", "a")
			b.granted("y", "a", grant("2", "6"))
		},
		"two hold a: x was granted it": func(b *book) { b.granted("x", "a", grant("1", "5")); b.granted("y", "a", grant("2", "6")) },
		"its deadline is not over": func(b *book) {
			b.granted("x", "a", grant("1", "5"))
			b.lost("x", "a")
			b.granted("y", "a", grant("2", "6"))
		},
		"fencing token was 5": func(b *book) {
			b.granted("x", "a", grant("1", "5"))
			b.release("x", "a")
			b.granted("x", "a", grant("2", "5"))
		},
		"with lease 1":         func(b *book) { b.granted("x", "a", grant("1", "5")); b.checked("x", "a", grant("2", "5")) },
		"and fencing token 5,": func(b *book) { b.granted("x", "a", grant("1", "5")); b.checked("x", "a", grant("1", "6")) },
		"LOCK a: ERR HELD":     func(b *book) { b.granted("x", "a", "ERR HELD lock=a") },
		"CHECK a: ERR LOST":    func(b *book) { b.granted("x", "a", grant("1", "5")); b.checked("x", "a", "ERR LOST lock=a") },
		"the deadline is over": func(b *book) {
			b.granted("x", "a", grant("1", "5"))
			b.checked("x", "a", "OK lock=a lease=1 fence=5 deadline=1")
		},
	} {
		l := &load{t: t}
		script(newBook(l.fault))
		if got := strings.Join(l.faults, "\n"); got != "" && want == "" || !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
