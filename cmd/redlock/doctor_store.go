package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/client"
)

// The unit that keeps connections through a restart, and how long systemd may take to
// say what it knows of it, which it does for everybody.
const (
	unitName       = "redlockd.service"
	systemdTimeout = 2 * time.Second
)

// checkRestarts looks at how many connections systemd keeps through a restart: it drops
// what is more than it may keep, and does not say so; redlockd takes those for ended by
// their clients. It finds nothing where the daemon is not that of the unit.
func checkRestarts(ctx context.Context, socket, systemctl string) []finding {
	if socket != client.DefaultSocket {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	unit, err := showUnit(ctx, systemctl)
	if err != nil || unit["LoadState"] != "loaded" {
		return nil
	}
	limits, _ := os.ReadFile("/proc/1/limits") // without it one check less
	return restartFindings(unit, managerFiles(string(limits)))
}

// showUnit is what systemd says of the unit, by property.
func showUnit(ctx context.Context, systemctl string) (map[string]string, error) {
	cmd := exec.CommandContext(ctx, systemctl, "show", "--property=LoadState,FileDescriptorStoreMax,Environment", unitName)
	output, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	properties := map[string]string{}
	for line := range strings.Lines(string(output)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		properties[key] = value
	}
	return properties, nil
}

// managerFiles is how many files systemd itself may have open, of /proc/1/limits; 0: that
// is not known, or there is no bound.
func managerFiles(limits string) int {
	_, rest, found := strings.Cut(limits, "\nMax open files")
	if fields := strings.Fields(rest); found && len(fields) > 0 {
		n, _ := strconv.Atoi(fields[0]) // 0 for "unlimited"
		return n
	}
	return 0
}

// toldPlaces is FDSTORE= of the unit's Environment=, which counts for redlockd; false: there
// is none, and systemd tells by itself, from 254 on.
func toldPlaces(environment string) (n int, told bool) {
	for _, assignment := range strings.Fields(environment) {
		if value, is := strings.CutPrefix(strings.Trim(assignment, `"`), "FDSTORE="); is {
			n, err := strconv.Atoi(value)
			return n, err == nil
		}
	}
	return 0, false
}

func restartFindings(unit map[string]string, files int) []finding {
	kept, err := strconv.Atoi(unit["FileDescriptorStoreMax"])
	if err != nil {
		return nil // no systemd that keeps any
	}
	told, is := toldPlaces(unit["Environment"])
	const both = "systemctl edit redlockd: the same number for FileDescriptorStoreMax= and Environment=FDSTORE=, above limits.connections; and systemctl restart redlockd"
	switch {
	case is && told > kept:
		return []finding{{"restarts", bad, fmt.Sprintf("redlockd is told that %d connections are kept through a restart (FDSTORE=), and systemd keeps %d (FileDescriptorStoreMax=): "+
			"locks of more clients than that are given back by a restart while they are at work", told, kept), both}}
	case files > 0 && kept >= files:
		return []finding{{"restarts", bad, fmt.Sprintf("systemd is to keep %d connections through a restart (FileDescriptorStoreMax=), and may have %d files open itself: "+
			"locks of more clients than that are given back by a restart while they are at work", kept, files), both + "; fewer than that"}}
	case kept == 0 || is && told == 0:
		return []finding{{"restarts", warning, "systemd keeps no connections through a restart of redlockd: all end, and clients have to resume what they hold", both}}
	case is && told < kept:
		return []finding{{"restarts", warning, fmt.Sprintf("systemd keeps %d connections through a restart (FileDescriptorStoreMax=), and redlockd uses %d of these places (FDSTORE=)", kept, told), both}}
	}
	return []finding{{"restarts", ok, fmt.Sprintf("systemd keeps %d connections through a restart", kept), ""}}
}
