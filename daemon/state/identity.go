package state

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// formatVersion is the version of the records that this daemon reads and writes.
const formatVersion = "redlockd table 5"

// bootIDFile is a variable for tests.
var bootIDFile = "/proc/sys/kernel/random/boot_id"

// identity returns what must be the same for a state file to be valid: its instants are of this boot
// and this clock, and its tokens are on these nodes. Behind the version is the PID namespace, which
// may differ.
func (o *Options) identity() ([]byte, error) {
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return nil, fmt.Errorf("the boot id cannot be read: %w", err)
	}
	clock := strings.TrimSpace(string(boot)) + clockOffset()
	lines := []string{formatVersion + namespaceMark + pidNamespace(), clock, o.KeyPrefix}
	for _, node := range o.Nodes {
		line := node.Name
		switch {
		case node.Joining:
			line += joiningMark
		case node.Leaving:
			line += leavingMark
		}
		lines = append(lines, line)
	}
	return []byte(strings.Join(lines, "\n")), nil
}

// namespaceMark separates the version from pidNamespace.
const namespaceMark = " in "

// pidNamespace is a variable for tests. It returns the name of the PID namespace of this process, such
// as "pid:[4026531836]"; "": it is unknown. The name is free again when all processes of the namespace
// have ended.
var pidNamespace = func() string {
	name, _ := os.Readlink("/proc/self/ns/pid")
	return name
}

// Marks behind the name of a node, which has no space.
const (
	joiningMark = " joining"
	leavingMark = " leaving"
)

// offsetMark separates the boot id from clockOffset.
const offsetMark = " + "

// timeOffsetsFile is a variable for tests.
var timeOffsetsFile = "/proc/self/timens_offsets"

// clockOffset returns the offset of CLOCK_BOOTTIME in this time namespace from the clock of the
// machine. Instants of one namespace are wrong in another one, such as a container's. "": there is no
// offset, or the kernel has no time namespaces.
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

// sameIdentity returns an error that says what differs, or nil.
func sameIdentity(found, wanted []byte) error {
	then, now := bytes.SplitN(found, []byte("\n"), 3), bytes.SplitN(wanted, []byte("\n"), 3)
	version, _ := versionOf(found)
	switch {
	case bytes.Equal(found, wanted):
		return nil
	case len(then) < 3 || version != formatVersion:
		return errors.New("it was written by another version of redlockd")
	case !bytes.Equal(bootOf(then[1]), bootOf(now[1])):
		return errors.New("the host was rebooted after it was written")
	case !bytes.Equal(then[1], now[1]):
		return errors.New("its clock is the one of another time namespace")
	case shareList(then[2], now[2]):
		return nil
	}
	return errors.New("the config has other nodes or another key_prefix now")
}

// versionOf returns the version in an identity, and the PID namespace; "": it is unknown.
func versionOf(identity []byte) (version, namespace string) {
	line, _, _ := strings.Cut(string(identity), "\n")
	version, namespace, _ = strings.Cut(line, namespaceMark)
	return version, namespace
}

// inOtherNamespace reports whether the process ids of a state file are those of another PID
// namespace. Then nobody knows which process a lease belongs to, or whether it lives.
func inOtherNamespace(found, wanted []byte) bool {
	_, then := versionOf(found)
	_, now := versionOf(wanted)
	return then != "" && then != now
}

// bootOf returns a clock without its offset: the boot id.
func bootOf(clock []byte) []byte {
	boot, _, _ := bytes.Cut(clock, []byte(offsetMark))
	return boot
}

// shareList reports whether two configs have the same key_prefix, and a list of nodes in common. In a
// change of the nodes, a config has the old list and the new one. Leases continue then: the quorums
// of the two configs overlap.
func shareList(then, now []byte) bool {
	for _, a := range prefixAndLists(then) {
		for _, b := range prefixAndLists(now) {
			if slices.Equal(a, b) {
				return true
			}
		}
	}
	return false
}

// prefixAndLists returns the key_prefix with the nodes of the old list, and with those of the new one.
// It sorts the nodes: their order in the config does not matter.
func prefixAndLists(text []byte) (lists [2][]string) {
	prefix, rest, _ := strings.Cut(string(text), "\n")
	lists = [2][]string{{prefix}, {prefix}}
	for line := range strings.SplitSeq(rest, "\n") {
		name, isJoining := strings.CutSuffix(line, joiningMark)
		name, isLeaving := strings.CutSuffix(name, leavingMark)
		if !isJoining {
			lists[0] = append(lists[0], name)
		}
		if !isLeaving {
			lists[1] = append(lists[1], name)
		}
	}
	for _, list := range lists {
		slices.Sort(list[1:])
	}
	return lists
}
