package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/daemon/metrics"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// who asks the nodes.
func (s *session) who(call *server.Call) server.Work {
	return workFunc(func() {
		holdings, waiters, err := s.host.Nodes.WhoWaits(call.Context(), call.Names[0])
		switch {
		case err != nil:
			s.refuse(call, err)
		case len(holdings) <= manyHolders:
			s.answerWho(call, holdings, waiters)
		default: // the answer can be as long as a LIST
			s.oneAtATime(call, func() { s.answerWho(call, holdings, waiters) })
		}
	})
}

func (s *session) answerWho(call *server.Call, holdings []redlock.Holding, waiters []redlock.Waiting) {
	d, name := s.host, call.Names[0]
	nodes := int64(len(d.Cfg.Quorum.Nodes))
	for _, h := range holdings {
		here := d.onNodes(&h) // a client that may send WHO also sees it in LIST
		line := new(ipc.Response).Line(call.Tag).Str("lock", name).Str("mode", modeOf(h.Shared))
		holderFields(waitingField(slotField(slotsField(line, h.Slots), h.Slot), h.Waiting), d.currentHolder(&h, here))
		noteField(d.goneField(d.keptField(ttlField(line, h.TTL).Int("held", int64(h.Held)).Int("nodes", nodes), here), here), here)
		call.Line(line.Say(d.whoText(&h, here)))
	}
	r := call.OK().Int("n", int64(len(holdings)))
	var here time.Duration
	d.queueMu.Lock()
	first := d.queue.FirstWaiting(name)
	d.queueMu.Unlock()
	if first != nil {
		here = d.waitOf(first)
	}
	hosts := d.waitingHosts(waiters, here)
	waitingFields(r, hosts)
	if i := slices.IndexFunc(hosts, func(h waitingHost) bool { return h.name == d.hostname }); i >= 0 {
		r.Int("position", int64(i+1))
	}
	call.Reply(r)
}

// waitingHost is a host with clients that wait for a lock.
type waitingHost struct {
	name   string
	waited time.Duration // its first client
}

// waitingHosts returns the hosts that wait for a lock, in the order in which they get it. here is
// for how long a client of this host has waited: it may not be in the nodes' queues.
func (d *Host) waitingHosts(waiters []redlock.Waiting, here time.Duration) (hosts []waitingHost) {
	add := func(name string, waited time.Duration) {
		if !slices.ContainsFunc(hosts, func(h waitingHost) bool { return h.name == name }) {
			hosts = append(hosts, waitingHost{name, waited})
		}
	}
	for i := range waiters {
		add(waiters[i].Holder.Host, waiters[i].For)
	}
	if here > 0 {
		add(d.hostname, here)
	}
	return hosts
}

// waitingFields adds the hosts that wait, and for how many milliseconds each has waited.
func waitingFields(r *ipc.Response, hosts []waitingHost) {
	if hosts == nil {
		return
	}
	names, waited := make([]string, len(hosts)), make([]string, len(hosts))
	for i, h := range hosts {
		names[i], waited[i] = h.name, strconv.FormatInt(h.waited.Milliseconds(), 10)
	}
	r.Strs("waiting_hosts", names...).Strs("waiting_ms", waited...)
}

// currentHolder returns the present holder of a lock. After a pass, the nodes still show the
// previous holder.
func (d *Host) currentHolder(h *redlock.Holding, here *heldLease) redlock.Holder {
	if here == nil || !here.lease.Passed() {
		return h.Holder
	}
	return d.holderOf(&here.Requester, here.lease.Since())
}

func (d *Host) whoText(h *redlock.Holding, here *heldLease) string {
	switch {
	case h.Waiting:
		return "nobody holds it; the nodes keep it for this client, which waits and is next"
	case !h.Holder.Known():
		return "held by another Redlock client, which does not identify itself"
	case here != nil && d.isKept(here):
		return "its holder has ended; it stays taken for kept= (min=)"
	case here != nil && here.lease.TimeToRelease() > 0:
		return fmt.Sprintf("it was lost (%s), and stays taken for at most ttl=: its client may still be working", here.lease.Reason())
	case here != nil && d.isHolderGone(here):
		return "its process ended while redlockd was down; it stays taken for at most ttl=, because another process may resume it"
	}
	return ""
}

// keptField adds how long a lease of this daemon stays taken at least, whatever its holder does.
func (d *Host) keptField(line *ipc.Response, here *heldLease) *ipc.Response {
	if here == nil || here.lease.Err() != nil {
		return line
	}
	if left := d.minLeft(here); left > 0 {
		line.Ms("kept", left)
	}
	return line
}

// goneField says that the process of a lease of this daemon has ended, if that is known.
func (d *Host) goneField(line *ipc.Response, here *heldLease) *ipc.Response {
	if here != nil && d.isHolderGone(here) {
		line.Str("gone", "yes")
	}
	return line
}

// noteField adds note= of a lease of this daemon, if it has one.
func noteField(line *ipc.Response, here *heldLease) {
	if here != nil && here.Note != "" {
		line.Str("note", here.Note)
	}
}

// manyHolders is the number of holders above which an answer to WHO counts as a long one.
const manyHolders = 100

// list may wait for another LIST of the same user, so it does not run on the goroutine that reads the
// connection.
func (s *session) list(call *server.Call) server.Work {
	answer := s.listAll
	if call.All {
		answer = s.listFleet
	}
	return workFunc(func() { s.oneAtATime(call, func() { answer(call) }) })
}

// oneAtATime writes one long answer of a user at a time, because a user can have many connections.
// Only requests of the same user wait meanwhile, until their clients cancel them.
func (s *session) oneAtATime(call *server.Call, answer func()) {
	select {
	case s.listing <- struct{}{}:
	case <-call.Context().Done():
		s.refuse(call, context.Cause(call.Context()))
		return
	}
	defer func() { <-s.listing }()
	if s.host.Limits.Unread(s.uid) > maxUnread {
		s.refuse(call, errUnread)
		return
	}
	answer()
}

// listAll shows the leases and waiters of this daemon that the client may see, without their
// secrets. It shows a lost lease while no other client can get the lock.
func (s *session) listAll(call *server.Call) {
	d := s.host
	holdings := d.allLeases()
	slices.SortFunc(holdings, func(a, b *heldLease) int {
		return cmp.Or(slices.Compare(a.Waiter.Names, b.Waiter.Names), cmp.Compare(a.Asked, b.Asked))
	})
	n, view := 0, s.view()
	for _, h := range holdings {
		names, state, left := view.VisibleNames(h.Waiter.Requester.UID, h.Waiter.Names), "held", h.lease.Validity()
		switch {
		case h.lease.Err() != nil:
			state, left = "lost", h.lease.TimeToRelease()
		case d.isKept(h):
			state = "kept"
		}
		if names != nil && (state != "lost" || left > 0) {
			line := slotField(s.listLine(call, names, &h.Waiter, d.mode(h), state, h.lease.Since()), h.lease.Slot())
			call.Line(s.host.goneField(s.host.keptField(line.Int("fence", int64(h.lease.Fence())).Ms("ttl", left), h), h))
			n++
		}
	}
	for _, p := range s.host.Waiting() {
		if names := view.VisibleNames(p.Requester.UID, p.Names); names != nil {
			call.Line(s.listLine(call, names, p, p.Kind, "waiting", p.Requester.Asked))
			n++
		}
	}
	call.Reply(call.OK().Int("n", int64(n)))
}

// listFleet answers LIST all=yes: one page of the locks of all hosts that the client may inspect.
// The next page is another request, so the list ends when its client is gone.
func (s *session) listFleet(call *server.Call) {
	view := s.view()
	if err := view.PermitListAll(); err != nil {
		s.deny(call, err)
		return
	}
	page, err := s.host.Nodes.Scan(call.Context(), call.From)
	if err != nil {
		s.refuse(call, err)
		return
	}
	waiting, n := s.host.localWaits(), 0
	for i := range page.Locks {
		if lock := &page.Locks[i]; ipc.CheckName(lock.Name) == nil && view.MayInspect(lock.Name) {
			n += s.fleetLines(call, lock, waiting[lock.Name])
		}
	}
	r := call.OK().Int("n", int64(n)).Int("walked", int64(page.Walked)).Int("walks", int64(page.Walks))
	if page.Next != "" {
		r.Str("next", page.Next)
	}
	call.Reply(r)
}

// localWaits returns the names that clients of this host wait for, and for how long the first client
// of each has waited.
func (d *Host) localWaits() map[string]time.Duration {
	names := map[string]time.Duration{}
	for _, w := range d.Waiting() {
		for _, name := range w.Names {
			names[name] = max(names[name], d.waitOf(w))
		}
	}
	return names
}

// waitOf returns for how long a client has waited: more than 0.
func (d *Host) waitOf(w *locktable.Waiter) time.Duration {
	return max(d.Clock()-w.Requester.Asked, 1)
}

// fleetLines adds a line for each holder of a lock, and returns how many. here is for how long
// clients of this host have waited for the lock; 0: none waits.
func (s *session) fleetLines(call *server.Call, lock *redlock.StoredLock, here time.Duration) int {
	nodes := int64(len(s.host.Cfg.Quorum.Nodes))
	hosts := s.host.waitingHosts(lock.Waiters, here)
	line := func(state string) *ipc.Response {
		return new(ipc.Response).Line(call.Tag).Str("lock", lock.Name).Str("state", state)
	}
	waiters := func(r *ipc.Response) *ipc.Response {
		if hosts != nil {
			waitingFields(r.Str("wanted", "yes"), hosts)
		}
		return r
	}
	if lock.Many {
		call.Line(waiters(line("held").Str("mode", modeOf(true)).Str("many", "yes").Int("nodes", nodes)))
		return 1
	}
	for i := range lock.Holdings {
		h := &lock.Holdings[i]
		state := "held"
		if h.Waiting {
			state = "turn"
		}
		here := s.host.onNodes(h)
		r := slotField(slotsField(line(state).Str("mode", modeOf(h.Shared)), h.Slots), h.Slot)
		holderFields(r, s.host.currentHolder(h, here))
		noteField(s.host.goneField(ttlField(r, h.TTL).Int("held", int64(h.Held)).Int("nodes", nodes), here), here)
		call.Line(waiters(r))
	}
	return len(lock.Holdings)
}

// Locks returns the leases and waiters of this host for the status page, without ids, owners and
// notes.
func (d *Host) Locks() (locks []metrics.Lock) {
	show := func(w *locktable.Waiter, mode, state string, since time.Duration) {
		locks = append(locks, metrics.Lock{Names: w.Names, State: state, Mode: mode, User: w.Requester.User, PID: w.Requester.PID, Since: d.Clock() - since})
	}
	for _, h := range d.allLeases() {
		mode := pageMode(d.mode(h), h.lease.Slot())
		switch {
		case d.isKept(h):
			show(&h.Waiter, mode, "kept", h.lease.Since())
		case h.lease.Err() == nil:
			show(&h.Waiter, mode, "held", h.lease.Since())
		case h.lease.TimeToRelease() > 0:
			show(&h.Waiter, mode, "lost", h.lease.Since())
		}
	}
	for _, w := range d.Waiting() {
		show(w, pageMode(w.Kind, 0), "waiting", w.Requester.Asked)
	}
	return locks
}

// pageMode returns the mode for the status page. A waiter has no slot yet: 0.
func pageMode(kind locktable.Kind, slot int) string {
	switch {
	case kind.Slots == 0:
		return modeOf(kind.Shared)
	case slot == 0:
		return fmt.Sprintf("one of %d slots", kind.Slots)
	}
	return fmt.Sprintf("slot %d of %d", slot, kind.Slots)
}

// counts returns how many leases and waiters of this daemon LIST would show the client.
func (d *Host) counts(view access.View) (leases, waiters int) {
	for _, h := range d.allLeases() {
		if h.lease.Err() == nil && view.VisibleNames(h.Waiter.Requester.UID, h.Waiter.Names) != nil {
			leases++
		}
	}
	for _, p := range d.Waiting() {
		if view.VisibleNames(p.Requester.UID, p.Names) != nil {
			waiters++
		}
	}
	return leases, waiters
}

func (s *session) listLine(call *server.Call, names []string, p *locktable.Waiter, kind locktable.Kind, state string, since time.Duration) *ipc.Response {
	who := p.Requester
	line := new(ipc.Response).Line(call.Tag).Strs("lock", names...).Str("state", state).Str("mode", modeOf(kind.Shared))
	pidField(slotsField(line, int(kind.Slots)), who.PID).Str("user", who.User).Ms("since", s.host.Clock()-since)
	if who.Note != "" {
		line.Str("note", who.Note)
	}
	return line
}

// status answers from memory. It shows the nodes, and how many leases and waiters LIST would show
// the client.
func (s *session) status(call *server.Call) server.Work {
	status := s.host.status()
	for _, node := range status.Nodes {
		call.Line(nodeLine(call, node, status.Change))
	}
	leases, waiters := s.host.counts(s.view())
	n := int64(len(status.Nodes))
	r := call.OK().Int("n", n).Int("nodes", n).
		Int("quorum", int64(status.Quorum)).
		Int("spare", int64(status.Spare())).
		Int("leases", int64(leases)).
		Int("waiters", int64(waiters)).
		Int("connections", int64(s.host.Limits.Connections()))
	if status.Left > 0 {
		r.Ms("left", status.Left)
	}
	text := statusText(status)
	if left, drains := s.host.drainLeft(); drains {
		r.Ms("draining", left)
		text = s.host.drainText(left) + "; " + text
	}
	if c := status.Change; c != nil {
		r.Str("change", string(c.Step))
		text += "; change of the nodes (" + string(c.Step) + "): " + c.Next(nil)
	}
	text = s.host.sayUnreloaded(r, text)
	if why := s.host.Journal.Health(); why != state.Healthy {
		r.Str("unnoted", "yes").Str("table", why.String())
		text += "; a restart of redlockd would lose leases and waiters, because " + why.Text()
	}
	if ignored := *s.host.doctorIgnore.Load(); ignored != nil {
		r.Strs("doctor_ignore", ignored...)
	}
	return reply(call, countFields(r, status).Say(text))
}

// countFields adds how often each event happened since the daemon was started.
func countFields(r *ipc.Response, status redlock.Status) *ipc.Response {
	c := status.Counts
	return r.Ms("max_ttl", status.MaxTTL).
		Int("grants", int64(c.Grants)).
		Int("lost", int64(c.Lost)).
		Int("handovers", int64(c.HandOvers)).
		Int("passes", int64(c.Passes)).
		Int("splits", int64(c.Splits)).
		Int("wakeups", int64(c.Wakeups)).
		Int("writebacks", int64(c.WriteBacks)).
		Int("repairs", int64(c.Repairs)).
		Int("quarantines", int64(c.Quarantines)).
		Int("clock_jumps", int64(c.ClockJumps)).
		Int("withdrawals", int64(c.Withdrawals)).
		Int("counter_losses", int64(c.CounterLosses))
}

func nodeLine(call *server.Call, node redlock.NodeStatus, change *redlock.Change) *ipc.Response {
	line := new(ipc.Response).Line(call.Tag).Str("node", node.Name).
		Str("address", node.Address).Str("state", string(node.State))
	if node.State == redlock.NodeReady {
		line.Str("wakeups", wakeUps(node))
	}
	if node.Left > 0 {
		line.Ms("left", node.Left)
	}
	if node.RTT > 0 {
		line.Ms("rtt", node.RTT+time.Millisecond-1) // rounded up
	}
	if node.Write > 0 {
		line.Ms("write", node.Write+time.Millisecond-1)
	}
	if n := len(node.OtherWarnings()); n > 0 {
		line.Int("warnings", int64(n))
	}
	if node.IsVolatile() {
		line.Str("persistence", "none")
	}
	return stepFields(line, node, change).Say(nodeText(node))
}

// wakeUps returns how the node wakes waiters.
func wakeUps(node redlock.NodeStatus) string {
	if node.Calls {
		return "pubsub"
	}
	return "polling"
}

// nodeText returns why a node does not vote, or its warnings.
func nodeText(node redlock.NodeStatus) string {
	var texts []string
	switch {
	case node.NeedsOthers():
		texts = append(texts, missingNodesText(node))
	case node.Reason != nil:
		texts = append(texts, ReasonText(node.Reason))
	}
	return strings.Join(append(texts, node.OtherWarnings()...), "; ")
}

func missingNodesText(node redlock.NodeStatus) string {
	text := fmt.Sprintf("after that, its fencing counters are to be copied from %d other nodes that may vote, and there are %d: bring those up", node.SourcesNeeded, node.SourcesFound)
	if e, ok := errors.AsType[*redlock.QuarantineError](node.Reason); ok {
		return e.Reason.Error() + "; " + text
	}
	return text
}

// ReasonText returns why a node does not vote. It does not state how long a quarantine lasts (left=
// does), and does not quote Redis if the login failed.
func ReasonText(reason error) string {
	if e, ok := errors.AsType[*redlock.QuarantineError](reason); ok {
		return e.Reason.Error() + "; after that its votes count again"
	}
	return cmp.Or(loginText(reason), reason.Error())
}

func statusText(status redlock.Status) string {
	text := strings.Join(append([]string{availabilityText(status)}, status.Warning...), "; ")
	if n := status.Counts.CounterLosses; n > 0 {
		text += "; a quorum of nodes began without fencing counters: unless they were new, earlier tokens may be larger: " +
			"check that the stores that compare tokens accept the next ones (a restart of redlockd ends this message)"
	}
	return text
}

// availabilityText returns whether locks can be taken, and how many nodes may fail.
func availabilityText(status redlock.Status) string {
	switch spare := status.Spare(); {
	case spare < 0 && status.Left > 0:
		return fmt.Sprintf("no quorum for another %v: %s", Seconds(status.Left), NoQuorumReason(status))
	case spare < 0:
		return "no quorum: " + NoQuorumReason(status)
	case spare == 0:
		return "locks work, but no further node may fail"
	case spare == 1:
		return "locks work, and 1 more node may fail"
	default:
		return "locks work, and " + strconv.Itoa(spare) + " more nodes may fail"
	}
}

// NoQuorumReason returns why there is no quorum, and what to do, for STATUS and for the log.
func NoQuorumReason(status redlock.Status) string {
	const voteless = "do not vote for max_ttl and up to 2s for differing clocks, because they may have forgotten locks"
	switch {
	case status.Left == 0:
		return "no lock can be taken until more nodes are ready"
	case slices.ContainsFunc(status.Nodes, isQuarantinedHere):
		return "this host was stopped, or nodes' clocks were stepped, so nodes may have released locks that are still held; " +
			"LOCK waits for that; it ends by itself, and cannot be ended early"
	case slices.ContainsFunc(status.Nodes, redlock.NodeStatus.NeedsOthers):
		return "nodes that were restarted or flushed " + voteless + "; and after that not until more nodes are up, " +
			"because they must copy fencing counters from others, of which too few may vote; LOCK waits for that"
	}
	text := "nodes that are new or were restarted " + voteless + "; LOCK waits for that"
	if status.AllNew && !slices.ContainsFunc(status.Nodes, func(n redlock.NodeStatus) bool { return n.State != redlock.NodeQuarantined }) {
		return text + "; if all nodes are known to be new, and no host holds a lock, end it: ADMIT all, or in a shell redlock admit all"
	}
	return text + "; do not end it earlier (ADMIT) while any host may hold a lock: these nodes are not new, and two clients could hold it"
}

func isQuarantinedHere(n redlock.NodeStatus) bool { return n.OnlyHere }

// Seconds rounds up to whole seconds.
func Seconds(d time.Duration) time.Duration { return wholeSeconds(d) }
