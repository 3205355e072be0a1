package doctor

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

// The unit that keeps connections through a restart, and the time limit for systemctl. Any user may
// query it.
const (
	unitName       = "redlockd.service"
	systemdTimeout = 2 * time.Second
)

// checkRestarts checks how many connections systemd keeps through a restart. systemd silently drops
// connections above its limit, and redlockd then assumes that their clients closed them. The check
// finds nothing if the daemon does not run as the unit.
func checkRestarts(ctx context.Context, socket, systemctl string) []Finding {
	if socket != client.DefaultSocket {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	unit, err := showUnit(ctx, systemctl)
	if err != nil || unit["LoadState"] != "loaded" {
		return nil
	}
	limits, _ := os.ReadFile("/proc/1/limits") // without it one check is skipped
	return restartFindings(unit, managerFileLimit(string(limits)))
}

// showUnit returns properties of the unit by name.
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

// managerFileLimit returns how many files systemd itself may open, from /proc/1/limits, or 0 if
// that is unlimited or unknown.
func managerFileLimit(limits string) int {
	_, rest, found := strings.Cut(limits, "\nMax open files")
	if fields := strings.Fields(rest); found && len(fields) > 0 {
		n, _ := strconv.Atoi(fields[0]) // 0 for "unlimited"
		return n
	}
	return 0
}

// fdstoreSetting returns FDSTORE= of the unit's Environment=, which redlockd obeys. Without it
// redlockd uses the limit that systemd passes, from version 254 on.
func fdstoreSetting(environment string) (n int, isSet bool) {
	for _, assignment := range strings.Fields(environment) {
		if value, is := strings.CutPrefix(strings.Trim(assignment, `"`), "FDSTORE="); is {
			n, err := strconv.Atoi(value)
			return n, err == nil
		}
	}
	return 0, false
}

func restartFindings(unit map[string]string, files int) []Finding {
	kept, err := strconv.Atoi(unit["FileDescriptorStoreMax"])
	if err != nil {
		return nil // this systemd keeps none
	}
	told, is := fdstoreSetting(unit["Environment"])
	const both = "systemctl edit redlockd: the same number for FileDescriptorStoreMax= and Environment=FDSTORE=, above limits.connections; and systemctl restart redlockd"
	switch {
	case is && told > kept:
		return []Finding{{"restarts", Bad, fmt.Sprintf("redlockd expects %d connections to be kept through a restart (FDSTORE=), but systemd keeps %d (FileDescriptorStoreMax=): "+
			"with more clients than that, a restart releases locks while they work", told, kept), both}}
	case files > 0 && kept >= files:
		return []Finding{{"restarts", Bad, fmt.Sprintf("systemd should keep %d connections through a restart (FileDescriptorStoreMax=), but may itself have only %d files open: "+
			"with more clients than that, a restart releases locks while they work", kept, files), both + "; fewer than that"}}
	case kept == 0 || is && told == 0:
		return []Finding{{"restarts", Warning, "systemd keeps no connections through a restart of redlockd: all end, and clients must resume their leases", both}}
	case is && told < kept:
		return []Finding{{"restarts", Warning, fmt.Sprintf("systemd keeps %d connections through a restart (FileDescriptorStoreMax=), and redlockd uses %d of these places (FDSTORE=)", kept, told), both}}
	}
	return []Finding{{"restarts", OK, fmt.Sprintf("systemd keeps %d connections through a restart", kept), ""}}
}
