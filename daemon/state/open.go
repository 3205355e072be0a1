package state

import (
	"errors"
	"path/filepath"

	"github.com/redlockd/redlockd/daemon/state/statefile"
)

// Options are the options of Open.
type Options struct {
	Socket    string // of the daemon: the state file is in its directory
	KeyPrefix string // of the keys on the nodes
	Nodes     []Node
}

// Node is a node of the config: by its name, because its address may change.
type Node struct {
	Name             string
	Joining, Leaving bool // in a change of the nodes
}

// Open opens the state file, and returns the state that an earlier process left there. The daemon
// also serves without a state file, but then a restart loses leases and waiters: Health says why.
// Only Health may be called before Open.
func (j *Journal) Open(o Options) *Recovered {
	identity, err := o.identity()
	if err != nil {
		j.health.Store(int32(NoBootID))
		j.log.Warn("no state file is kept: a restart would lose leases and waiters", "error", err, "fix", "let redlockd read "+bootIDFile+" and restart it")
		statefile.Remove(statefile.PathFor(o.Socket)) // it would soon be out of date
		return &newReplay().Recovered
	}
	var before []byte
	file, state, damage, err := statefile.Open(statefile.Options{
		Path:   statefile.PathFor(o.Socket),
		Owner:  identity,
		Check:  func(found []byte) error { before = found; return sameIdentity(found, identity) },
		New:    func() statefile.State { return newReplay() },
		Failed: j.failed,
	})
	recovered := &state.(*replay).Recovered
	if inOtherNamespace(before, identity) {
		for _, l := range recovered.Leases {
			l.Holder.PID = 0 // here, another process may have this id, or none
		}
	}
	if damage != nil {
		j.log.Error("the state file was damaged: connections are cut, and known leases can be resumed", "error", damage, "fix", "this happens once; if it happens again, find out what writes to the files of redlockd in the directory of its socket")
	}
	if err != nil {
		j.health.Store(int32(Unopened))
		j.log.Error("the state file cannot be opened: a restart would lose leases and waiters", "error", err, "fix", "make room in the directory of the socket, or let redlockd write there, and restart it when few locks are held")
		return recovered
	}
	if onDisk(o.Socket) {
		j.log.Warn("the state file is on a disk: while the disk is slow, redlockd hangs, and LOST may come after a deadline", "directory", filepath.Dir(o.Socket), "fix", "put the socket into a directory in memory (tmpfs), as /run is")
	}
	j.file = file
	j.lastNumber.Store(recovered.lastNumber)
	j.replacedList = recovered.ReplacedList
	recovered.Complete = damage == nil
	return recovered
}

// onDisk is a variable for tests.
var onDisk = statefile.OnDisk

// failed logs that the state file cannot be written; err is nil: it can be written again.
func (j *Journal) failed(err error) {
	if j.health.Store(int32(healthOf(err))); err == nil {
		j.log.Info("the state file is written again: a restart loses nothing")
		return
	}
	j.log.Error("the state file cannot be written: a restart would lose leases and waiters", "error", err, "fix", fixOf(err))
}

// Health says whether, and why, a restart would lose leases and waiters. Each cause has its own fix.
type Health int32

const (
	Healthy   Health = iota // nothing would be lost, or the daemon keeps no state file
	Unwritten               // the state file cannot be written; the daemon retries
	Removed                 // the state file was removed or truncated; the daemon does not retry
	Unopened                // the state file could not be opened at the start
	NoBootID                // the boot id cannot be read
)

// Health returns the health of the state file.
func (j *Journal) Health() Health {
	if j == nil {
		return Healthy
	}
	return Health(j.health.Load())
}

// String returns the word in STATUS.
func (h Health) String() string {
	return [...]string{"", "unwritten", "removed", "unopened", "boot"}[h]
}

// Text describes the problem for operators.
func (h Health) Text() string {
	return [...]string{
		Healthy:   "",
		Unwritten: "its state file cannot be written now: its log says why",
		Removed:   "its state file was removed or cut short: only a restart creates a new one",
		Unopened:  "its state file could not be opened at its start, and only a restart retries that: its log says why",
		NoBootID:  "it cannot read which boot this is in " + bootIDFile,
	}[h]
}

// fixOf returns what an operator can do about an error of the state file.
func fixOf(err error) string {
	if healthOf(err) == Removed {
		return "restart redlockd when few locks are held"
	}
	return "make room in the directory of the socket: redlockd retries at most once a second"
}

func healthOf(err error) Health {
	switch {
	case err == nil:
		return Healthy
	case errors.Is(err, statefile.ErrRemoved):
		return Removed
	}
	return Unwritten
}

// OutlastsProcess reports whether the next process gets the leases and requests of this one. While
// the state file cannot be written temporarily, it gets only some of them.
func (j *Journal) OutlastsProcess() bool { return j.IsOpen() && j.Health() != Removed }
