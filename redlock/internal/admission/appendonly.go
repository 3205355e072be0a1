package admission

import (
	"fmt"
	"strings"
	"time"
)

// AppendOnlyFile is what a node reports about its append-only file.
type AppendOnlyFile struct {
	enabled   bool // also if it was enabled just now: then earlier votes are missing until a rewrite
	failed    bool // the last write or rewrite failed
	rewriting bool // or a rewrite is scheduled

	// The following fields are read only from durable nodes.
	fsync          string // appendfsync
	noFsyncRewrite string // no-appendfsync-on-rewrite
	loadsAll       bool   // a restart would read the whole file
	omitReason     string // why a restart would not; "" if that is not known
}

// FileSettings are the parameters of CONFIG GET that ReadSetting reads.
var FileSettings = []string{"appendfsync", "no-appendfsync-on-rewrite"}

// ReadSetting records the value of one of FileSettings.
func (f *AppendOnlyFile) ReadSetting(name, value string) {
	switch strings.ToLower(name) {
	case FileSettings[0]:
		f.fsync = value
	case FileSettings[1]:
		f.noFsyncRewrite = value
	}
}

// FileCommands returns commands like those that the file contains for votes, on a key like a
// lock's. Redis reads its file with the rights of its default user, which may be off. If a script
// wrote more than once, Redis skips what that user may not do (redis/redis#14541).
func FileCommands(lock string) [][]string {
	return [][]string{
		{"SET", lock, "1", "PXAT", "1"}, {"DEL", lock}, {"PEXPIREAT", lock, "1"}, {"ZADD", lock, "1", "1"}, {"ZREM", lock, "1"},
		{"SET", "redlockd:forced:", "1", "PXAT", "1"}, {"HSET", NodeKey, "1", "1"},
	}
}

// DryRun is the answer to ACL DRYRUN for one command: an error, or text.
type DryRun struct {
	Err  error
	Text string
}

// ReadRights records whether the default user may run each of the commands. Messages show keys
// without suffix.
func (f *AppendOnlyFile) ReadRights(commands [][]string, answers []DryRun, suffix string) {
	f.loadsAll = len(answers) == len(commands)
	for i := range min(len(answers), len(commands)) {
		if f.omitReason = whyOmitted(commands[i], answers[i], suffix); f.omitReason != "" {
			f.loadsAll = false
			return
		}
	}
}

// whyOmitted says why Redis may skip a command when it loads the file; "" if it does not.
func whyOmitted(command []string, answer DryRun, suffix string) string {
	switch {
	case answer.Err != nil:
		return "our ACL has no +acl|dryrun, which shows what its user default may do"
	case answer.Text != "OK":
		return fmt.Sprintf("its user default may not %s %s…, and Redis skips that when it loads the file", command[0], strings.TrimSuffix(command[1], suffix))
	}
	return ""
}

// hasEachVote reports whether every vote is on disk before it is answered, and still there
// after a restart.
func (f *AppendOnlyFile) hasEachVote() bool {
	return f.enabled && !f.failed && f.fsync == "always" && f.noFsyncRewrite == "no" && f.loadsAll
}

// lacks says why hasEachVote is false.
func (f *AppendOnlyFile) lacks() string {
	var all []string
	lack := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	lack(!f.enabled, "appendonly is no")
	lack(f.failed, "the last write or rewrite of its file failed (a full disk?)")
	lack(f.fsync != "always", "appendfsync is %s", orUnreadable(f.fsync))
	lack(f.noFsyncRewrite != "no", "no-appendfsync-on-rewrite is %s", orUnreadable(f.noFsyncRewrite))
	lack(!f.loadsAll, "%s", orUnreadable(f.omitReason))
	return strings.Join(all, ", ")
}

func orUnreadable(s string) string {
	if s == "" {
		return "not readable"
	}
	return s
}

// durability is what a member remembers about its append-only file.
type durability struct {
	complete bool          // the file has every vote, as far as was seen
	from     time.Duration // BootTime from which on the file has each vote that still counts
}

// noteFile records whether the file has every vote from now on. If a file is being rewritten when
// it is first seen, it may have been off until then: it lacks the votes before the end of the
// rewrite.
func (d *durability) noteFile(f *AppendOnlyFile) {
	switch {
	case !f.hasEachVote():
		d.complete = false
	case !f.rewriting:
		d.complete = true
	}
}

// noteTime moves the instant from which on a restart loses nothing. While the file may lack
// votes, these count for longest more.
func (d *durability) noteTime(now, longest time.Duration) {
	if !d.complete {
		d.from = now + longest
	}
}

// noPersistence is the beginning of a warning about a node that keeps no data over a restart.
const noPersistence = "no persistence: "

// IsNoPersistence reports whether a warning is that the node keeps no data over a restart. Safety
// does not depend on that, and all nodes of a fleet may be so.
func IsNoPersistence(warning string) bool { return strings.HasPrefix(warning, noPersistence) }

// warnings returns why a restart costs a quarantine, with the fix.
func (d *durability) warnings(f *AppendOnlyFile, durable bool) []string {
	switch {
	case durable && !f.hasEachVote():
		return []string{"durable = true does not hold: " + f.lacks() + "; " +
			"until CONFIG SET appendonly yes, appendfsync always and no-appendfsync-on-rewrite no, room on its disk, and ~* &* +@all in the ACL of its user default (which may be off), a restart is quarantined"}
	case durable && !d.complete:
		return []string{"durable = true does not hold yet: its append-only file is being rewritten, and may have been off before; " +
			"until that is over, a restart is quarantined"}
	case !durable && (!f.enabled || f.failed):
		return []string{noPersistence + "a restart forgets all votes and fencing counters, and costs a quarantine; " +
			"appendonly yes and appendfsync always with durable = true avoid that"}
	}
	return nil
}
