package session

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/metrics"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/daemon/timers"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// Host is what all connections of this daemon share.
//
// Its mutexes are held briefly, around fields, and not together. The exceptions: mu is taken inside
// queueMu and inside the mutex of the connection store, and those of timers and of a redlock.Lease
// inside mu.
type Host struct {
	// mu guards the leases: the table, its clients, and the fields of leases and LOCKs that say so. No
	// operation under it takes long.
	mu    sync.Mutex
	table *locktable.Table

	userGates [64]sync.Mutex   // taken before queueMu, never inside it: see inQueue
	queueMu   sync.Mutex       // guards queue; LOST never waits for it
	queue     *locktable.Queue // and its Waiters

	Cfg      *config.Config
	Log      hclog.Logger
	Clock    func() time.Duration
	hostname string
	version  string
	Nodes    *redlock.Quorum
	status   func() redlock.Status
	Limits   *access.Limits
	access   atomic.Pointer[config.Access] // nil: every client may lock anything
	users    access.Users
	recorder *metrics.Recorder // of events, for Prometheus; nil: metrics are off

	Processes *processes // processes that hold leases (hold=pid)

	Journal         *state.Journal   // records what outlasts the process; not open with embedded nodes
	pendingReleases atomic.Int32     // recorded releases that a quorum has confirmed: see maxPendingReleases
	Store           *state.ConnStore // connections that outlast the process; nil: none do

	// The connection that is being restored, while no other is opened.
	restoring         uint64 // its number; 0: none
	restoringUnstored bool   // the service manager does not have it

	timers timers.Set // timers of leases; Close stops them

	keptFDs         int         // HostOptions.KeptFDs
	acceptLogged    rateLimiter // bounds log lines that no connection could be accepted
	isAcceptFailing atomic.Bool // a failure was logged, but not yet its end
	deniedLogged    rateLimiter // bounds log lines of a denied FORCE or ADMIT

	doctorIgnore atomic.Pointer[[]string] // checks of redlock doctor whose warnings are accepted

	unreloaded atomic.Pointer[error] // why the last new config was not used; nil: it was, or there was none

	LeaseLog *logging.LeaseLog // logs grants, releases and losses

	drainUntil atomic.Int64 // BootTime at which Drain stops waiting; 0: it has not begun
	Stopping   atomic.Bool  // nothing is released from now on
	replacing  atomic.Bool  // the process replaces itself: it passes all connections that clients have not ended
}

// HostOptions are the inputs of a Host.
type HostOptions struct {
	Config   *config.Config
	Log      hclog.Logger
	Recorder *metrics.Recorder // nil: metrics are off
	// Status returns what STATUS shows of the nodes; nil: Quorum.Status.
	Status func() redlock.Status
	// Version is the version that HELLO shows.
	Version string
	// KeptFDs is how many file descriptors clients do not get, in addition to the nodes'
	// descriptors.
	KeptFDs int
}

// NewHost makes a Host. The caller must call Connect next.
func NewHost(o HostOptions) *Host {
	d := &Host{
		Cfg:      o.Config,
		Log:      o.Log,
		Clock:    redlock.BootTime,
		version:  o.Version,
		status:   o.Status,
		queue:    locktable.New(),
		table:    locktable.NewTable(),
		Limits:   access.NewLimits(o.Config.Limits),
		recorder: o.Recorder,
		Journal:  state.NewJournal(o.Log),
		keptFDs:  o.KeptFDs,
	}
	d.setLimits(o.Config.Limits)
	d.access.Store(o.Config.Access)
	d.doctorIgnore.Store(&o.Config.Doctor.Ignore)
	d.Processes = newProcesses(d.endProcess)
	var err error
	if d.hostname, err = os.Hostname(); err != nil {
		d.hostname = "?"
	}
	d.LeaseLog = logging.NewLeaseLog(o.Log, d.hostname, o.Config.Log.Grants)
	return d
}

// Connect begins to connect to the nodes. It sets Host, DeadlineChanged, DeadlinesMovedBack
// and TokenChanges of the options.
func (d *Host) Connect(o redlock.Options) (err error) {
	o.Host, o.DeadlineChanged, o.DeadlinesMovedBack, o.TokenChanges = d.nameForNodes(), d.recordDeadline, d.recordDeadlines, d.recordToken
	if d.Nodes, err = redlock.New(o); err != nil {
		return err
	}
	if d.status == nil {
		d.status = d.Nodes.Status
	}
	return nil
}

// inQueue calls do with the queue locked, for a request or its lease. Requests for several names take
// long, so the gate of a user lets one of them through at a time. When thousands of them end at once,
// another user waits for one of them, not for all.
func (d *Host) inQueue(w *locktable.Waiter, do func(*locktable.Queue)) {
	if gate := d.gate(w); gate != nil {
		gate.Lock()
		defer gate.Unlock()
	}
	d.queueMu.Lock()
	defer d.queueMu.Unlock()
	do(d.queue)
}

// locked calls read while it holds mu.
func locked[T any](d *Host, read func() T) T {
	d.mu.Lock()
	defer d.mu.Unlock()
	return read()
}

// gate returns the gate of the user, which a few other users may share. It is nil for a request for
// one name.
func (d *Host) gate(w *locktable.Waiter) *sync.Mutex {
	if len(w.Names) < 2 {
		return nil
	}
	return &d.userGates[uint(w.Requester.UID)%uint(len(d.userGates))]
}

// Waiting lists the waiters without a lease, in the order of arrival.
func (d *Host) Waiting() []*locktable.Waiter {
	d.queueMu.Lock()
	defer d.queueMu.Unlock()
	return d.queue.Waiting()
}

// nameForNodes returns the name of this daemon for the operator of the nodes: the host and, unless it
// is the usual one, its socket, because several daemons can run on a host.
func (d *Host) nameForNodes() string {
	if path := d.Cfg.Socket.Path; path != config.DefaultSocketPath {
		return d.hostname + ":" + path
	}
	return d.hostname
}

// Hostname returns the name of this host, or "?".
func (d *Host) Hostname() string { return d.hostname }

// Close ends the connections to the nodes. It waits until no timer's function runs.
func (d *Host) Close() {
	d.Stopping.Store(true)
	d.timers.Stop()
	d.Nodes.Close()
}

// recordDeadline records the new deadline of a lease. Before the lease is registered, the record of
// its grant contains the deadline.
func (d *Host) recordDeadline(l *redlock.Lease) {
	if h := d.leaseByID(l.ID()); h != nil {
		d.record(h, unchanged)
	}
}

// recordToken records the new token of a lease. It returns false if the lease is not registered yet.
func (d *Host) recordToken(l *redlock.Lease, to redlock.Record) bool {
	h := d.leaseByID(l.ID())
	if h == nil {
		return false
	}
	d.record(h, func() (by uint64) {
		h.exchanged = &to
		return 0
	})
	return true
}

// recordDeadlines records the deadlines of all leases after they have moved back.
func (d *Host) recordDeadlines() {
	for _, h := range d.allLeases() {
		d.record(h, unchanged)
	}
}

// recordConnection numbers, records and stores a new connection.
func (d *Host) recordConnection(s *session) {
	if d.restoring != 0 {
		s.number = d.restoring
		s.stored.Init(s, s.number, s.opened)
		if d.restoringUnstored {
			d.Store.Add(&s.stored)
		} else {
			d.Store.AddStored(&s.stored)
		}
		return
	}
	s.number = d.Journal.NextNumber()
	s.stored.Init(s, s.number, s.opened)
	d.Journal.ConnOpened(s.number, false)
	d.Store.Add(&s.stored)
}

// LogManagerError logs a failed message to the service manager.
func (d *Host) LogManagerError(err error) {
	if err != nil {
		d.Log.Warn("the service manager does not know how this daemon is", "error", err)
	}
}

// Reload replaces the access rules, the limits, and what redlock doctor ignores. Held leases stay
// held, and waiting requests go on, because the earlier rules allowed them.
func (d *Host) Reload(cfg *config.Config) {
	d.access.Store(cfg.Access)
	d.doctorIgnore.Store(&cfg.Doctor.Ignore)
	d.setLimits(cfg.Limits)
	d.LeaseLog.SetGrants(cfg.Log.Grants)
	d.unreloaded.Store(nil)
}

// NoteUnreloaded records why a new config was not used: STATUS and NODES say so.
func (d *Host) NoteUnreloaded(why error) { d.unreloaded.Store(&why) }

// sayUnreloaded adds to an answer that the last new config was not used, and returns its text with the reason.
func (d *Host) sayUnreloaded(r *ipc.Response, text string) string {
	why := d.unreloaded.Load()
	if why == nil {
		return text
	}
	r.Str("unreloaded", "yes")
	return text + "; the last new config was not reloaded: " + (*why).Error()
}

func (d *Host) setLimits(limits config.Limits) {
	d.Limits.Set(limits)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.table.SetLimits(locktable.Limits{Leases: limits.LeasesPerUser, Waiters: limits.WaitersPerUser})
}

// drainLeft returns how long the daemon drains at most from now on, and whether it drains.
func (d *Host) drainLeft() (left time.Duration, drains bool) {
	until := time.Duration(d.drainUntil.Load())
	return max(until-d.Clock(), time.Millisecond), until != 0 // a client reads 0 as no drain
}

// Drains reports whether the daemon drains.
func (d *Host) Drains() bool { return d.drainUntil.Load() != 0 }

// checkDescriptorsLeft returns an error if clients may use no more descriptors.
func (d *Host) checkDescriptorsLeft() error {
	if DescriptorsLeft() < d.KeptDescriptors() {
		return errFDsReserved
	}
	return nil
}

// KeptDescriptors returns how many descriptors clients do not get. The nodes need some, and so do
// the metrics listener, files and /proc.
func (d *Host) KeptDescriptors() int {
	return reservedFDsPerNode*len(d.Cfg.Quorum.Nodes) + reservedFDsBesides + d.keptFDs
}

// rateLimiter bounds how often something is logged. It is safe for concurrent use.
type rateLimiter struct{ last atomic.Int64 } // BootTime

// allow reports whether the pause has passed since it last allowed.
func (r *rateLimiter) allow(now, pause time.Duration) bool {
	last := r.last.Load()
	return (last == 0 || now-time.Duration(last) >= pause) && r.last.CompareAndSwap(last, int64(now))
}
