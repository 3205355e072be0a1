package daemon

import (
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// quorumState tracks, for the log, whether a quorum of nodes is ready. It reports one loss in each
// window (nodeWindow), and then how many others there were.
type quorumState struct {
	mu           sync.Mutex // guards the fields below
	ready        map[string]bool
	hasQuorum    bool          // a quorum was ready at the last change of a node
	isLossLogged bool          // the log says that there is no quorum
	lossLoggedAt time.Duration // BootTime at which the log said so
	losses       int           // in this window
}

// noteLossLogged records that the log says that there is no quorum.
func (q *quorumState) noteLossLogged(now time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.hasQuorum {
		q.isLossLogged, q.lossLoggedAt = true, now
	}
}

// update records the state of a node. lost: this change lost the quorum. back: there is a quorum
// again, and the log said that there was none; lasted is how long that was.
func (q *quorumState) update(s redlock.NodeStatus, quorum int, now time.Duration) (ready int, lost, back bool, lasted time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ready == nil {
		q.ready = map[string]bool{}
	}
	q.ready[s.Name] = s.State == redlock.NodeReady
	for _, is := range q.ready {
		if is {
			ready++
		}
	}
	lost, back, lasted = q.changeLocked(ready >= quorum, now)
	return ready, lost, back, lasted
}

// changeLocked records whether there is a quorum.
func (q *quorumState) changeLocked(hasQuorum bool, now time.Duration) (lost, back bool, lasted time.Duration) {
	before := q.hasQuorum
	q.hasQuorum = hasQuorum
	switch {
	case before && !hasQuorum:
		q.losses++
		q.isLossLogged, q.lossLoggedAt = q.losses == 1, now
		return q.isLossLogged, false, 0
	case !before && hasQuorum && q.isLossLogged:
		q.isLossLogged = false
		return false, true, now - q.lossLoggedAt
	}
	return false, false, 0
}

// nextWindow returns how many losses of this window were not reported, and whether there is a quorum
// now. If not, its return is reported.
func (q *quorumState) nextWindow() (repeats int, hasQuorum bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	repeats = max(q.losses-1, 0)
	q.losses = 0
	if repeats > 0 && !q.hasQuorum {
		q.isLossLogged, q.losses = true, 1
	}
	return repeats, q.hasQuorum
}

// logQuorumRepeats logs how often a quorum was lost again in this window.
func (d *daemon) logQuorumRepeats() {
	repeats, hasQuorum := d.quorate.nextWindow()
	if repeats == 0 {
		return
	}
	now := "there is a quorum"
	if !hasQuorum {
		now = "no lock can be taken"
	}
	d.Log.Error("quorum lost repeatedly, because nodes come and go: lines like the last ones were left out", "losses", repeats, "now", now)
}

// logQuorum logs the loss of the quorum and its return, once each.
func (d *daemon) logQuorum(s redlock.NodeStatus) {
	if d.isChanging {
		return // logChange does
	}
	nodes, quorum := len(d.Cfg.Quorum.Nodes), d.Cfg.Quorum.Needed()
	ready, lost, back, lasted := d.quorate.update(s, quorum, d.Clock())
	d.logQuorumNews(lost, back, lasted, "ready", ready, "quorum", quorum, "nodes", nodes)
}

func (d *daemon) logQuorumNews(lost, back bool, lasted time.Duration, facts ...any) {
	switch {
	case lost:
		d.Log.Error("quorum lost: no lock can be taken, and held locks may be lost, unless nodes come back", facts...)
	case back:
		d.Log.Info("there is a quorum: locks can be taken", append(facts, "after", lasted.Round(time.Millisecond))...)
	}
}
