package redlock

import "time"

// NodeState is where a node stands.
type NodeState string

const (
	NodeConnecting NodeState = "connecting" // not reached yet since the start
	NodeReady      NodeState = "ready"      // answers, and its votes count
	NodeDown       NodeState = "down"       // cannot be reached, or does not answer
)

// NodeStatus is what is known of a node.
type NodeStatus struct {
	Name    string
	Address string
	State   NodeState
	Reason  error         // why it is not ready; or, where it is, what it answered with an error lately
	RTT     time.Duration // of the last round trip; 0 before the first
}

// Status is what is known of all nodes, from memory.
type Status struct {
	Quorum int
	Ready  int
	Nodes  []NodeStatus
}

// Spare is how many more nodes may fail before there is no quorum; negative
// where there is none.
func (s Status) Spare() int { return s.Ready - s.Quorum }

// Status returns what is known of the nodes. It does not ask them.
func (q *Quorum) Status() Status {
	status := Status{Quorum: q.quorum, Nodes: make([]NodeStatus, len(q.lanes))}
	for i, l := range q.lanes {
		status.Nodes[i] = l.status()
		if status.Nodes[i].State == NodeReady {
			status.Ready++
		}
	}
	return status
}

func (l *lane) status() NodeStatus {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	status := l.statusLocked()
	if l.state == NodeReady && l.sentAt != 0 && now-l.sentAt > l.timing.answer {
		status.State, status.Reason = NodeDown, silence(now-l.sentAt)
	}
	return status
}

// statusLocked needs mu.
func (l *lane) statusLocked() NodeStatus {
	status := NodeStatus{Name: l.node.Name, Address: l.node.Address, State: l.state, Reason: l.reason, RTT: l.rtt}
	if l.state == NodeReady {
		status.Reason = l.trouble
	}
	return status
}

// unreachable says how a call of that kind would fail, or nil if it would be sent.
func (l *lane) unreachable(op string) *NodeError {
	status := l.status()
	if status.State == NodeReady {
		return nil
	}
	return &NodeError{Node: l.node.Name, Op: op, Failure: FailedDown, Err: status.Reason}
}
