package daemon

import (
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/redlockd/redlockd/daemon/session"
	"github.com/redlockd/redlockd/redlock"
)

// nodeObserver returns a function that logs changes of nodes. A problem is logged as a warning,
// once for each change of state and for each reason.
func (d *daemon) nodeObserver() func(redlock.NodeStatus) {
	var mu sync.Mutex // guards seen
	seen := map[string]*loggedNode{}
	return func(s redlock.NodeStatus) {
		mu.Lock()
		before := seen[s.Name]
		if before == nil {
			before = new(loggedNode)
			seen[s.Name] = before
		}
		warnings, isNews := before.update(s)
		mu.Unlock()
		if !d.Stopping.Load() { // a stopping daemon closes the connections itself
			d.logNode(s, warnings, isNews)
			d.logQuorum(s)
		}
	}
}

// maxReasons bounds how many reasons are logged as warnings while a node is in one state.
const maxReasons = 4

// loggedNode is what the log has about a node.
type loggedNode struct {
	state    redlock.NodeState
	warnings []string
	reasons  []string // of the state, without digits
}

// update records the status of the node. It returns new warnings, and whether the state or its
// reason is new.
func (n *loggedNode) update(s redlock.NodeStatus) (warnings []string, isNews bool) {
	if now := s.OtherWarnings(); !slices.Equal(n.warnings, now) {
		warnings, n.warnings = now, now
	}
	if isNews = n.state != s.State; isNews {
		n.state, n.reasons = s.State, nil
	}
	if s.Reason == nil {
		return warnings, isNews
	}
	reason := strings.Map(withoutDigits, session.ReasonText(s.Reason)) // ports and times differ each time
	if !slices.Contains(n.reasons, reason) && len(n.reasons) < maxReasons {
		n.reasons, isNews = append(n.reasons, reason), true
	}
	return warnings, isNews
}

func withoutDigits(r rune) rune {
	if unicode.IsDigit(r) {
		return -1
	}
	return r
}

func (d *daemon) logNode(s redlock.NodeStatus, warnings []string, isNews bool) {
	for _, warning := range warnings {
		d.Log.Warn("node could be safer", "node", s.Name, "warning", warning)
	}
	log := d.Log.Warn
	if !isNews {
		log = d.Log.Debug
	}
	switch s.State {
	case redlock.NodeReady:
		d.Log.Info("node is ready", "node", s.Name, "address", s.Address)
	case redlock.NodeQuarantined:
		log("node is in quarantine: its votes do not count yet", "node", s.Name, "address", s.Address, "left", session.Seconds(s.Left), "reason", session.ReasonText(s.Reason))
	case redlock.NodeRefused:
		log("node is refused: its votes do not count until this is fixed", "node", s.Name, "address", s.Address, "reason", session.ReasonText(s.Reason))
	default:
		log("node is down", "node", s.Name, "address", s.Address, "reason", session.ReasonText(s.Reason))
	}
}
