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
		j.log.Warn("a restart will lose what is held and waited for", "error", err)
		statefile.Remove(statefile.PathFor(o.Socket)) // it would be wrong soon
		return &newReplay().Recovered
	}
	file, state, damage, err := statefile.Open(statefile.Options{
		Path:   statefile.PathFor(o.Socket),
		Owner:  identity,
		Check:  func(found []byte) error { return sameIdentity(found, identity) },
		New:    func() statefile.State { return newReplay() },
		Failed: j.failed,
	})
	recovered := &state.(*replay).Recovered
	if damage != nil {
		j.log.Error("not all is known of the time before the restart: connections of then are cut, and leases that are known can be resumed", "error", damage)
	}
	if err != nil {
		j.health.Store(int32(Unopened))
		j.log.Error("a restart will lose what is held and waited for", "error", err)
		return recovered
	}
	if onDisk(o.Socket) {
		j.log.Warn("the table is on a disk: while that is slow redlockd stands still, and LOST may come after a deadline", "directory", filepath.Dir(o.Socket), "fix", "have the socket in a directory of memory (tmpfs), as /run is")
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
		j.log.Info("the table is written again: a restart loses nothing")
		return
	}
	j.log.Error("the table cannot be written: as long as that is so, a restart loses what is held and waited for", "error", err)
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
		Unwritten: "its table cannot be written for now: its log says why",
		Removed:   "files of its table were removed, or cut short: a restart alone begins a new one",
		Unopened:  "its table could not be begun, which is not tried again before a restart: its log says why",
		NoBootID:  "which boot this is cannot be read in " + bootIDFile,
	}[h]
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
