package client

import (
	"context"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// Entry is a lease of this host's daemon, or a waiting request.
type Entry struct {
	Name  string        // the lock; several names are joined by commas
	Names []string      // the locks that are held or awaited together
	Waits bool          // it is not held yet
	Lost  bool          // it was lost, but other clients cannot take all of it yet: for at most TTL
	Mode  string        // "exclusive" or "shared"
	Slots int           // how many clients may hold it at once, each in a slot; 0: no slots
	Slot  int           // the slot that is held, from 1; 0: none yet
	Fence uint64        // the fencing token; 0: it still waits
	TTL   time.Duration // how long it lasts unless it is extended
	PID   int
	User  string
	Since time.Duration // how long it has been held or waiting
	Note  string
	// Kept means that no client holds it any more, but it stays taken for KeptFor (WithMin).
	Kept    bool
	KeptFor time.Duration // how long it stays taken at least, even if its holder releases it
	// Gone means that the process PID ended while redlockd was down. The lock stays taken for at most
	// TTL, because another process may resume the lease.
	Gone bool
}

// Status is the state of this host's daemon.
type Status struct {
	Quorum int // how many nodes have to agree
	Spare  int // how many more failures the nodes tolerate; if negative, no lock can be taken
	// Left is the time until a quorum can vote, if only quarantines prevent it; otherwise 0. Waiting
	// requests outlast quarantines.
	Left   time.Duration
	MaxTTL time.Duration // the longest max_ttl of any host: the length of a quarantine
	// Draining is how long redlockd waits at most for held locks before it stops; 0: it does not stop.
	// Meanwhile it grants no new locks.
	Draining time.Duration
	// Change is how far the change of the nodes in this host's config is: see NodeChange; "": it has none.
	Change string
	Text   string // whether locks can be taken, and what to improve, for people
	// Unnoted means that a restart of redlockd would lose the leases and waiters, because its state
	// file cannot be written. Table is one word for the reason: "unwritten" (redlockd retries),
	// "removed" (the file was removed or truncated), "unopened" (when the daemon started) or "boot"
	// (the ID of this boot in /proc cannot be read). Table is empty if the file is written.
	Unnoted bool
	Table   string
	// Unreloaded means that redlockd read a new config and did not use it: Text says why.
	Unreloaded bool
	Nodes      []Node
	// DoctorIgnore lists the checks of redlock doctor whose warnings the config accepts.
	DoctorIgnore []string
	// Counts holds the daemon's other counters, by their names in the protocol.
	Counts map[string]int64
}

// Node is a Redis master, as this host's daemon sees it.
type Node struct {
	Name    string
	Address string
	State   string        // "ready", "connecting", "down", "quarantined" or "refused"
	Left    time.Duration // until its quarantine ends
	RTT     time.Duration // how long it took for the last requests that only read
	Write   time.Duration // how long it took for the last requests that wrote; 0: there were none
	Wakeups string        // how waiters learn that a lock is free: "pubsub" (the node calls them) or "polling"; "": unknown
	// Step is how far a change of the nodes is on it: "begun", "committed" or "done"; "": it is not
	// being changed. List is "joining" or "leaving" if the config says so.
	Step, List string
	// Volatile means that it is ready, but does not keep its data over a restart.
	Volatile bool
	Reason   string // why it is not ready, or what to improve, for people
}

// Hello describes this host's daemon and its config.
type Hello struct {
	Version     string
	TTL         time.Duration // the default lease time
	MinTTL      time.Duration // the shortest lease time
	MaxTTL      time.Duration // the longest lease time, in this host's config
	NodeTimeout time.Duration // a node has no vote if it has not answered within this time
}

// Who asks a quorum of nodes for the holders of the lock name, on all hosts. If it returns no
// holder and no error, the lock is free.
func (c *Client) Who(ctx context.Context, name string) ([]Holder, error) {
	lock, err := c.WhoWaits(ctx, name)
	if err != nil {
		return nil, err
	}
	return lock.Holders, nil
}

// WhoWaits asks a quorum of the nodes for the holders of the lock name, as Who does, and for the hosts
// that wait for it. Many is never set.
func (c *Client) WhoWaits(ctx context.Context, name string) (lock *FleetLock, err error) {
	if err := checkName(ipc.VerbWho, name); err != nil {
		return nil, err
	}
	err = c.ask(ctx, ipc.VerbWho, name, "", func(cl *call) {
		lock = &FleetLock{Name: name}
		for i := range cl.lines {
			lock.Holders = append(lock.Holders, holderOf(&cl.lines[i]))
		}
		lock.setWaiters(&cl.reply)
	})
	return lock, err
}

// List returns the leases and waiters of this host's daemon that this user may see.
func (c *Client) List(ctx context.Context) (entries []Entry, err error) {
	err = c.ask(ctx, ipc.VerbList, "", "", func(cl *call) {
		for i := range cl.lines {
			entries = append(entries, entryOf(&cl.lines[i]))
		}
	})
	return entries, err
}

// Status returns the state of this host's daemon and its nodes. It does not wait for any node.
func (c *Client) Status(ctx context.Context) (status *Status, err error) {
	err = c.ask(ctx, ipc.VerbStatus, "", "", func(cl *call) {
		status = statusOf(&cl.reply)
		for i := range cl.lines {
			status.Nodes = append(status.Nodes, nodeOf(&cl.lines[i]))
		}
	})
	return status, err
}

// Ping checks that the daemon answers.
func (c *Client) Ping(ctx context.Context) error {
	return c.ask(ctx, ipc.VerbPing, "", "", func(*call) {})
}

// Hello asks this host's daemon for its version and its limits.
func (c *Client) Hello(ctx context.Context) (hello Hello, err error) {
	err = c.ask(ctx, ipc.VerbHello, "", protocolVersion, func(cl *call) {
		hello = Hello{
			Version:     text(&cl.reply, "version"),
			TTL:         duration(&cl.reply, "ttl"),
			MinTTL:      duration(&cl.reply, "min_ttl"),
			MaxTTL:      duration(&cl.reply, "max_ttl"),
			NodeTimeout: duration(&cl.reply, "node_timeout"),
		}
	})
	return hello, err
}

func entryOf(r *ipc.Response) Entry {
	return Entry{
		Name:  text(r, "lock"),
		Names: r.Strings("lock"),
		Waits: text(r, "state") == "waiting",
		Lost:  text(r, "state") == "lost",
		Mode:  text(r, "mode"),
		Slots: int(number(r, "slots")),
		Slot:  int(number(r, "slot")),
		Fence: uint64(number(r, "fence")),
		TTL:   duration(r, "ttl"),
		PID:   int(number(r, "pid")),
		User:  text(r, "user"),
		Since: duration(r, "since"),
		Note:  text(r, "note"),

		Kept:    text(r, "state") == "kept",
		KeptFor: duration(r, "kept"),
		Gone:    text(r, "gone") == "yes",
	}
}

func nodeOf(r *ipc.Response) Node {
	return Node{
		Name:    text(r, "node"),
		Address: text(r, "address"),
		State:   text(r, "state"),
		Left:    duration(r, "left"),
		RTT:     duration(r, "rtt"),
		Write:   duration(r, "write"),
		Wakeups: text(r, "wakeups"),
		Step:    text(r, "step"),
		List:    text(r, "list"),
		Reason:  r.Text,

		Volatile: text(r, "persistence") == "none",
	}
}

func statusOf(r *ipc.Response) *Status {
	s := &Status{
		Quorum:   int(number(r, "quorum")),
		Spare:    int(number(r, "spare")),
		Left:     duration(r, "left"),
		MaxTTL:   duration(r, "max_ttl"),
		Draining: duration(r, "draining"),
		Change:   text(r, "change"),
		Text:     r.Text,
		Counts:   make(map[string]int64),

		Unnoted: text(r, "unnoted") == "yes",
		Table:   text(r, "table"),

		Unreloaded: text(r, "unreloaded") == "yes",

		DoctorIgnore: r.Strings("doctor_ignore"),
	}
	for _, f := range r.Fields {
		switch n, ok := r.Int64(f.Key); f.Key {
		case "n", "nodes", "quorum", "spare", "left", "max_ttl", "draining":
		default:
			if ok {
				s.Counts[f.Key] = n
			}
		}
	}
	return s
}

// ask sends a request with a name and a word (either may be empty), and waits for the answer. If it
// is OK, ask passes it to use.
func (c *Client) ask(ctx context.Context, verb ipc.Verb, name, word string, use func(*call)) error {
	cl := newCall(verb, name)
	if name != "" {
		cl.req.Names = []string{name}
	}
	if word != "" {
		cl.req.Words = []string{word}
	}
	err := c.do(ctx, cl)
	if err == nil {
		use(cl)
	}
	return err
}
