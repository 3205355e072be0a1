package state

import (
	"errors"
	"path/filepath"

	"github.com/redlockd/redlockd/daemon/state/statefile"
)

// Options say what a journal is about.
type Options struct {
	Socket    string   // of the daemon: the state file is beside it
	KeyPrefix string   // of the keys on the nodes
	Nodes     []string // by name
}

// Open opens the state file, and returns what an earlier process left there. Without a state
// file the daemon serves as well, but a restart loses more: Health says why. Open comes before
// everything else but Health.
func (j *Journal) Open(o Options) *Recovered {
	identity, err := o.identity()
	if err != nil {
		j.health.Store(int32(NoBootID))
		j.log.Warn("no state file is kept: a restart would lose what is held and waited for", "error", err, "fix", "let redlockd read "+bootIDFile+" and restart it")
		statefile.Remove(statefile.PathFor(o.Socket)) // it would be wrong soon
		return &newReplay().Recovered
	}
	file, state, damage, err := statefile.Open(statefile.Options{
		Path:   statefile.PathFor(o.Socket),
		Owner:  identity,
		Check:  func(found []byte) error { return sameIdentity(found, identity) },
		New:    func() statefile.State { return newReplay() },
		Merge:  func() statefile.State { return newMerge() },
		Failed: j.failed,
	})
	recovered := &state.(*replay).Recovered
	if damage != nil {
		j.log.Error("the state file was damaged: connections are cut, and known leases can be resumed", "error", damage, "fix", "this happens once; if it happens again, find out what writes to the files of redlockd in the directory of its socket")
	}
	if err != nil {
		j.health.Store(int32(Unopened))
		j.log.Error("the state file cannot be opened: a restart would lose what is held and waited for", "error", err, "fix", "make room in the directory of the socket, or let redlockd write there, and restart it when little is held")
		return recovered
	}
	if onDisk(o.Socket) {
		j.log.Warn("the state file is on a disk: while that is slow redlockd hangs, and LOST may come after a deadline", "directory", filepath.Dir(o.Socket), "fix", "put the socket into a directory in memory (tmpfs), as /run is")
	}
	j.file = file
	j.lastNumber.Store(recovered.lastNumber)
	recovered.Complete = damage == nil
	return recovered
}

// onDisk is replaced in tests.
var onDisk = statefile.OnDisk

// failed is called by the state file, which cannot be written; nil: it can be again.
func (j *Journal) failed(err error) {
	if j.health.Store(int32(healthOf(err))); err == nil {
		j.log.Info("the state file is written again: a restart loses nothing")
		return
	}
	j.log.Error("the state file cannot be written: a restart would lose what is held and waited for", "error", err, "fix", fixOf(err))
}

// Health says why a restart would lose what is held and waited for. What an operator has to
// do differs.
type Health int32

const (
	Healthy   Health = iota // nothing is lost, or nothing is to outlast the process
	Unwritten               // the state file cannot be written, which is retried
	Removed                 // somebody removed it or cut it short, which is not retried
	Unopened                // it could not be opened at the start
	NoBootID                // which boot this is cannot be read
)

// Health of the state file.
func (j *Journal) Health() Health {
	if j == nil {
		return Healthy
	}
	return Health(j.health.Load())
}

// String is the word in STATUS.
func (h Health) String() string {
	return [...]string{"", "unwritten", "removed", "unopened", "boot"}[h]
}

// Text is for people.
func (h Health) Text() string {
	return [...]string{
		Healthy:   "",
		Unwritten: "its state file cannot be written now: its log says why",
		Removed:   "its state file was removed or cut short: only a restart begins a new one",
		Unopened:  "its state file could not be opened at its start, which only a restart tries again: its log says why",
		NoBootID:  "it cannot read which boot this is in " + bootIDFile,
	}[h]
}

// fixOf says what an operator can do about an error of the state file.
func fixOf(err error) string {
	if healthOf(err) == Removed {
		return "restart redlockd when little is held"
	}
	return "make room in the directory of the socket: redlockd tries again at most once a second"
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

// OutlastsProcess tells whether the next process is left what this one holds. While the
// state file cannot be written for now, it is left some of it.
func (j *Journal) OutlastsProcess() bool { return j.IsOpen() && j.Health() != Removed }
