package daemon

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/redlockd/redlockd/daemon/session"
	"github.com/redlockd/redlockd/redlock"
)

// nodeLog logs changes of nodes. A problem is logged as a warning, once for each change of state and
// for each reason. A node can change several times a second. So each window has the same line about a
// node once, and then a line with the number of its repeats.
type nodeLog struct {
	mu    sync.Mutex // guards nodes; nothing is locked inside it
	nodes map[string]*loggedNode
}

// nodeWindow is how long the same line about a node is not repeated.
const nodeWindow = time.Minute

// maxNodeLines bounds the lines about a node in one window.
const maxNodeLines = 10

// observeNode logs a change of a node.
func (d *daemon) observeNode(s redlock.NodeStatus) {
	warnings, isNews, isLogged := d.nodeLog.update(s)
	if d.Stopping.Load() { // a stopping daemon closes the connections itself
		return
	}
	if isLogged {
		d.logNode(s, warnings, isNews)
	}
	d.logQuorum(s)
}

// update records the status of a node. It returns what is news, and whether to log it now.
func (l *nodeLog) update(s redlock.NodeStatus) (warnings []string, isNews, isLogged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	node := l.nodes[s.Name]
	if node == nil {
		if l.nodes == nil {
			l.nodes = map[string]*loggedNode{}
		}
		node = &loggedNode{}
		l.nodes[s.Name] = node
	}
	node.latest = s
	warnings, isNews = node.update(s)
	return warnings, isNews, !isNews && warnings == nil || node.isFirst(s, warnings, isNews)
}

// watchNodes logs what each window left out, until ctx ends and once more then. The caller waits for it.
func (d *daemon) watchNodes(ctx context.Context) {
	window := time.NewTicker(nodeWindow)
	defer window.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-window.C:
		}
		for _, n := range d.nodeLog.nextWindow() {
			d.Log.Warn("node changes repeatedly: lines like the last ones were left out", "node", n.latest.Name, "address", n.latest.Address,
				"lines", n.repeats, "state", n.latest.State, "reason", reasonOrNone(n.latest.Reason))
		}
		d.logQuorumRepeats()
	}
}

func reasonOrNone(reason error) string {
	if reason == nil {
		return "none"
	}
	return session.ReasonText(reason)
}

// nextWindow returns the nodes with lines that were left out, by name, and forgets the lines.
func (l *nodeLog) nextWindow() (left []loggedNode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, node := range l.nodes {
		if node.repeats > 0 {
			left = append(left, *node)
		}
		node.lines, node.repeats = nil, 0
	}
	slices.SortFunc(left, func(a, b loggedNode) int { return strings.Compare(a.latest.Name, b.latest.Name) })
	return left
}

// maxReasons bounds how many reasons are logged as warnings while a node is in one state.
const maxReasons = 4

// loggedNode is what the log has about a node.
type loggedNode struct {
	state    redlock.NodeState
	warnings []string
	reasons  []string // of the state, without digits

	latest  redlock.NodeStatus
	lines   []string // in this window, without digits
	repeats int      // lines of this window that were left out
}

// isFirst counts a line about the node, and reports whether this window has no such line yet.
func (n *loggedNode) isFirst(s redlock.NodeStatus, warnings []string, isNews bool) bool {
	line := strings.Join(warnings, "; ")
	if isNews {
		line += string(s.State)
		if s.Reason != nil {
			line += ": " + session.ReasonText(s.Reason)
		}
	}
	line = strings.Map(withoutDigits, line)
	if slices.Contains(n.lines, line) || len(n.lines) == maxNodeLines {
		n.repeats++
		return false
	}
	n.lines = append(n.lines, line)
	return true
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
