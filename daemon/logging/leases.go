package logging

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// A user can take, release and lose leases faster than an operator can read. In each window the log
// has at most this many lines about one user, and reports how many it left out.
const (
	leaseWindow   = 10 * time.Second
	maxLossLines  = 200
	maxGrantLines = 1000
)

// Lease is what the log says about a lease. It never has the lease's id, which is a secret.
type Lease struct {
	Lock  string // its names
	Fence uint64
	Mode  string // exclusive, shared or slots
	UID   int
	User  string
	PID   int
}

// LeaseLog logs lost leases and, with log { grants = true }, each grant, refusal and release.
// A line beyond a user's bound is counted instead. Its methods are safe for
// concurrent use and do not block.
type LeaseLog struct {
	log    hclog.Logger
	host   string
	grants atomic.Bool

	mu    sync.Mutex // guards users; nothing is locked inside it
	users map[int]*userLines
}

// userLines counts the lines about one user in this window.
type userLines struct {
	user           string
	losses, grants lines
}

// lines counts the lines of one kind.
type lines struct {
	n      int
	latest string // the last lock that was left out
}

// NewLeaseLog makes a LeaseLog. host is this host's name.
func NewLeaseLog(log hclog.Logger, host string, grants bool) *LeaseLog {
	l := &LeaseLog{log: log, host: host, users: map[int]*userLines{}}
	l.grants.Store(grants)
	return l
}

// SetGrants switches the lines of grants, refusals and releases.
func (l *LeaseLog) SetGrants(on bool) { l.grants.Store(on) }

// LogsGrants reports whether grants, refusals and releases are logged.
func (l *LeaseLog) LogsGrants() bool { return l.grants.Load() }

// Granted logs a grant, if grants are logged.
func (l *LeaseLog) Granted(lease Lease, waited time.Duration) {
	if l.LogsGrants() && l.countLine(lease, (*userLines).grantLines, maxGrantLines) {
		l.log.Info("lock granted", l.facts(lease, "waited_ms", waited.Milliseconds())...)
	}
}

// Released logs a release and why it happened, if grants are logged.
func (l *LeaseLog) Released(lease Lease, held time.Duration, reason string) {
	if l.LogsGrants() && l.countLine(lease, (*userLines).grantLines, maxGrantLines) {
		l.log.Info("lock released", l.facts(lease, "held_ms", held.Milliseconds(), "reason", reason)...)
	}
}

// Holder is the client because of which a request was refused.
type Holder struct {
	Host string // "": unknown, as for clients of other libraries
	User string
	PID  int
}

// Refused logs a request that ended without a grant, if grants are logged. code is its code in the
// protocol, and the lease has no fencing token.
func (l *LeaseLog) Refused(lease Lease, waited time.Duration, code string, by Holder) {
	if !l.LogsGrants() || !l.countLine(lease, (*userLines).grantLines, maxGrantLines) {
		return
	}
	values := []any{"lock", lease.Lock, "code", code, "user", lease.User, "pid", lease.PID, "host", l.host, "mode", lease.Mode, "waited_ms", waited.Milliseconds()}
	if by.Host != "" {
		values = append(values, "by_host", by.Host, "by_user", by.User, "by_pid", by.PID)
	}
	l.log.Info("lock refused", values...)
}

// Lost logs a lost lease as a warning. If asked is set, the client wanted the lease to end by its
// ttl (hold=ttl), and it logs no warning.
func (l *LeaseLog) Lost(lease Lease, held time.Duration, reason string, cause error, asked bool) {
	if !l.countLine(lease, (*userLines).lossLines, maxLossLines) {
		return
	}
	rest := []any{"fence", lease.Fence, "host", l.host, "mode", lease.Mode, "held_ms", held.Milliseconds()}
	if asked {
		l.log.Info("lease over: its ttl ended (hold=ttl)",
			append([]any{"lock", lease.Lock, "user", lease.User, "pid", lease.PID}, rest...)...)
		return
	}
	l.log.Warn("lease lost",
		append([]any{"lock", lease.Lock, "reason", reason, "user", lease.User, "pid", lease.PID, "cause", orNone(cause)}, rest...)...)
}

// facts returns the keys and values of a grant or a release, followed by more.
func (l *LeaseLog) facts(lease Lease, more ...any) []any {
	return append([]any{
		"lock", lease.Lock, "fence", lease.Fence, "user", lease.User, "pid", lease.PID, "host", l.host, "mode", lease.Mode,
	}, more...)
}

func orNone(err error) any {
	if err == nil {
		return "none"
	}
	return err
}

// countLine counts a line about the lease's user, and reports whether it is within the bound.
func (l *LeaseLog) countLine(lease Lease, kind func(*userLines) *lines, bound int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	user := l.users[lease.UID]
	if user == nil {
		user = &userLines{user: lease.User}
		l.users[lease.UID] = user
	}
	counted := kind(user)
	if counted.n++; counted.n > bound {
		counted.latest = lease.Lock
	}
	return counted.n <= bound
}

func (u *userLines) grantLines() *lines { return &u.grants }
func (u *userLines) lossLines() *lines  { return &u.losses }

// Run reports what each window left out, until ctx ends. The caller waits for it.
func (l *LeaseLog) Run(ctx context.Context) {
	window := time.NewTicker(leaseWindow)
	defer window.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-window.C:
		}
		l.nextWindow()
	}
}

// nextWindow logs how many lines were left out, and resets the counts.
func (l *LeaseLog) nextWindow() {
	l.mu.Lock()
	users := l.users
	l.users = map[int]*userLines{}
	l.mu.Unlock()
	for _, user := range users {
		if left := user.losses.n - maxLossLines; left > 0 {
			l.log.Warn("lines of lost leases were left out", "user", user.user, "lines", left, "latest", user.losses.latest)
		}
		if left := user.grants.n - maxGrantLines; left > 0 {
			l.log.Warn("lines of grants, refusals and releases were left out", "user", user.user, "lines", left, "latest", user.grants.latest)
		}
	}
}
