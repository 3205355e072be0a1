package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/daemon/state/statefile"
)

// openLedger opens the table of a daemon that is called by path. past is what an
// earlier one left there, and whole tells that nothing of it is missing. Without a
// table the daemon serves as well: a restart loses more then.
func (d *daemon) openLedger(path string) (p *past, whole bool) {
	owner, err := d.tableOwner()
	if err != nil {
		d.unnoted.Store(int32(noBoot))
		d.log.Warn("a restart will lose what is held and waited for", "error", err)
		statefile.Remove(statefile.Beside(path))
		return newPast(), false
	}
	t, state, damage, err := statefile.Open(statefile.Options{
		Path:   statefile.Beside(path),
		Owner:  owner,
		Check:  func(found []byte) error { return sameOwner(found, owner) },
		New:    func() statefile.State { return newPast() },
		Failed: d.tableFailed,
	})
	p = state.(*past)
	p.openAll()
	if damage != nil {
		d.log.Error("not all is known of the time before the restart: connections of then are cut, and leases that are known can be resumed", "error", damage)
	}
	if err != nil {
		d.unnoted.Store(int32(unopened))
		d.log.Error("a restart will lose what is held and waited for", "error", err)
		return p, false
	}
	if onDisk(path) {
		d.log.Warn("the table is on a disk: while that is slow redlockd stands still, and LOST may come after a deadline", "directory", filepath.Dir(path), "fix", "have the socket in a directory of memory (tmpfs), as /run is")
	}
	d.ledger = &ledger{table: t}
	d.ledger.last.Store(p.last)
	return p, damage == nil
}

// onDisk is another one in tests.
var onDisk = statefile.OnDisk

// tableFailed is told by the table.
func (d *daemon) tableFailed(err error) {
	if d.unnoted.Store(int32(whyUnnoted(err))); err == nil {
		d.log.Info("the table is written again: a restart loses nothing")
		return
	}
	d.log.Error("the table cannot be written: as long as that is so, a restart loses what is held and waited for", "error", err)
}

// unnoted is why a restart would lose what is held and waited for. What is to be done
// about it is not the same.
type unnoted int32

const (
	noted     unnoted = iota // it would not, or nothing is to outlast the process
	unwritten                // and it is tried again
	removed
	unopened
	noBoot
)

// String is what STATUS calls it.
func (u unnoted) String() string {
	return [...]string{"", "unwritten", "removed", "unopened", "boot"}[u]
}

func (u unnoted) text() string {
	return [...]string{
		unwritten: "its table cannot be written for now: its log says why",
		removed:   "files of its table were removed, or cut short: a restart alone begins a new one",
		unopened:  "its table could not be begun, which is not tried again before a restart: its log says why",
		noBoot:    "which boot this is cannot be read in " + bootIDFile,
	}[u]
}

// whyUnnoted is what an error of the table means that was opened.
func whyUnnoted(err error) unnoted {
	switch {
	case err == nil:
		return noted
	case errors.Is(err, statefile.ErrRemoved):
		return removed
	}
	return unwritten
}

// bequeaths tells whether a daemon that comes next is left what this one holds. (Where
// the table cannot be written for now, some of it is.)
func (d *daemon) bequeaths() bool {
	return d.ledger != nil && unnoted(d.unnoted.Load()) != removed
}

const tableFormat = "redlockd table 1"

// bootIDFile is another one in tests.
var bootIDFile = "/proc/sys/kernel/random/boot_id"

// tableOwner is what has to be the same for a table to be of use: the instants in it
// are of this boot and this clock, and its tokens on these nodes.
func (d *daemon) tableOwner() ([]byte, error) {
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return nil, fmt.Errorf("which boot this is cannot be read: %w", err)
	}
	names := make([]string, len(d.cfg.Quorum.Nodes))
	for i, node := range d.cfg.Quorum.Nodes {
		names[i] = node.Name // where it is may change, and is seen to by the nodes' own names
	}
	clock := strings.TrimSpace(string(boot)) + clockOffset()
	lines := append([]string{tableFormat, clock, d.cfg.Quorum.KeyPrefix}, names...)
	return []byte(strings.Join(lines, "\n")), nil
}

// offsetMark stands between a boot and clockOffset.
const offsetMark = " + "

// timeOffsetsFile is another one in tests.
var timeOffsetsFile = "/proc/self/timens_offsets"

// clockOffset is by how much CLOCK_BOOTTIME is beside that of the machine, as in a time
// namespace (a container can have one): instants of one are none of another. "": it is
// not, or the kernel has no such thing.
func clockOffset() string {
	offsets, _ := os.ReadFile(timeOffsetsFile)
	for line := range strings.Lines(string(offsets)) {
		offset, isBoottime := strings.CutPrefix(strings.Join(strings.Fields(line), " "), "boottime ")
		if isBoottime && offset != "0 0" {
			return offsetMark + offset
		}
	}
	return ""
}

// sameOwner says what is not the same.
func sameOwner(found, wanted []byte) error {
	then, now := bytes.SplitN(found, []byte("\n"), 3), bytes.SplitN(wanted, []byte("\n"), 3)
	switch {
	case bytes.Equal(found, wanted):
		return nil
	case len(then) < 3 || !bytes.Equal(then[0], now[0]):
		return errors.New("it was written by another version of redlockd")
	case !bytes.Equal(bootOf(then[1]), bootOf(now[1])):
		return errors.New("the machine was booted since it was written")
	case !bytes.Equal(then[1], now[1]):
		return errors.New("its clock is that of another time namespace")
	case slices.Equal(prefixAndNodes(then[2]), prefixAndNodes(now[2])):
		return nil
	}
	return errors.New("the nodes or the key_prefix of the config are others now")
}

// bootOf is the boot of a clock without its offset.
func bootOf(clock []byte) []byte {
	boot, _, _ := bytes.Cut(clock, []byte(offsetMark))
	return boot
}

// prefixAndNodes has the nodes in one order: another one in the config is no change.
func prefixAndNodes(text []byte) []string {
	lines := strings.Split(string(text), "\n")
	slices.Sort(lines[1:])
	return lines
}
