package redlock

import (
	"fmt"
	"strings"
	"time"
)

// appendOnly is what a node says of its append-only file.
type appendOnly struct {
	enabled   bool // also where it has just been, and has no vote of before until it was rewritten
	failed    bool // the last time that it was written, or rewritten
	rewriting bool // or about to

	// What follows is asked of durable nodes alone.
	fsync  string // appendfsync
	lax    string // no-appendfsync-on-rewrite
	loads  bool   // a restart would read all of it
	leaves string // why not; "": nobody knows
}

// fileSettings are those that CONFIG GET is asked for.
var fileSettings = []string{"appendfsync", "no-appendfsync-on-rewrite"}

// readSettings takes the answer in: names and values, in any order.
func (f *appendOnly) readSettings(fields []Reply) {
	for i := 0; i+1 < len(fields); i += 2 {
		switch strings.ToLower(fields[i].Str) {
		case fileSettings[0]:
			f.fsync = fields[i+1].Str
		case fileSettings[1]:
			f.lax = fields[i+1].Str
		}
	}
}

// filed are commands like those that the file has of votes, on a key that is like a lock's.
// Redis reads its file with the rights of its user default, which may be off, and leaves
// out what that may not do where a script wrote more than once (redis/redis#14541).
func filed(lock string) []Command {
	return []Command{
		{"SET", lock, "1", "PXAT", "1"}, {"DEL", lock}, {"PEXPIREAT", lock, "1"}, {"ZADD", lock, "1", "1"}, {"ZREM", lock, "1"},
		{"SET", "redlockd:forced:", "1", "PXAT", "1"}, {"HSET", nodeKey, "1", "1"},
	}
}

// readRights takes in whether the user default may do each of them.
func (f *appendOnly) readRights(commands []Command, replies []Reply) {
	f.loads = len(replies) == len(commands)
	for i := range min(len(replies), len(commands)) {
		if f.leaves = leftOut(commands[i], &replies[i]); f.leaves != "" {
			f.loads = false
			return
		}
	}
}

// leftOut says why Redis may leave a command out when it loads the file; "": it does not.
func leftOut(command Command, may *Reply) string {
	switch {
	case may.Err != nil:
		return "our ACL has no +acl|dryrun, which tells what its user default may do"
	case may.Str != "OK":
		key, _, _ := strings.Cut(command[1], beside)
		return fmt.Sprintf("its user default may not %s %s…, and Redis leaves that out when it loads the file", command[0], key)
	}
	return ""
}

// hasEachVote: every vote is on disk before it is answered, and there after a restart.
func (f *appendOnly) hasEachVote() bool {
	return f.enabled && !f.failed && f.fsync == "always" && f.lax == "no" && f.loads
}

// lacks says why not.
func (f *appendOnly) lacks() string {
	var all []string
	lack := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	lack(!f.enabled, "appendonly is no")
	lack(f.failed, "its file could not be written or rewritten the last time (a full disk?)")
	lack(f.fsync != "always", "appendfsync is %s", orNothing(f.fsync))
	lack(f.lax != "no", "no-appendfsync-on-rewrite is %s", orNothing(f.lax))
	lack(!f.loads, "%s", orNothing(f.leaves))
	return strings.Join(all, ", ")
}

func orNothing(s string) string {
	if s == "" {
		return "not to be read"
	}
	return s
}

// noteFile learns whether the file has every vote from now on. One that is being
// rewritten when it is seen for the first time may have been off until then: what was
// voted before the rewrite is over is not in it.
func (m *memory) noteFile(f *appendOnly) {
	switch {
	case !f.hasEachVote():
		m.fileWhole = false
	case !f.rewriting:
		m.fileWhole = true
	}
}

// noteDurable: a restart is to be waited for as long as votes count that the file may
// not have.
func (m *memory) noteDurable(now, longest time.Duration) {
	if !m.fileWhole {
		m.durableFrom = now + longest
	}
}

// fileWarnings are what makes a restart cost a quarantine, each with the fix.
func (m *memory) fileWarnings(f *appendOnly, durable bool) []string {
	switch {
	case durable && !f.hasEachVote():
		return []string{"durable = true does not hold: " + f.lacks() + "; " +
			"until CONFIG SET appendonly yes, appendfsync always and no-appendfsync-on-rewrite no, room on its disk, and ~* &* +@all in the ACL of its user default (which may be off), a restart is quarantined"}
	case durable && !m.fileWhole:
		return []string{"durable = true does not hold yet: its append-only file is being rewritten, and may have been off before; " +
			"until that is over, a restart is quarantined"}
	case !durable && (!f.enabled || f.failed):
		return []string{"no persistence: a restart forgets all votes and fencing counters, and costs a quarantine; " +
			"appendonly yes and appendfsync always with durable = true avoid that"}
	}
	return nil
}
