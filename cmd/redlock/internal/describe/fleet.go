package describe

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
)

// PrintFleet prints the locks of all hosts by name, a line for each holder.
func PrintFleet(out io.Writer, locks []client.FleetLock) error {
	if len(locks) == 0 {
		_, err := fmt.Fprintln(out, "no host holds a lock that you may see")
		return output.WriteError(err)
	}
	slices.SortStableFunc(locks, func(a, b client.FleetLock) int { return strings.Compare(a.Name, b.Name) })
	rows := [][]string{{"LOCK", "HOST", "PID", "USER", "MODE", "SINCE", "TTL", "HELD", "WAITING"}}
	for i := range locks {
		rows = append(rows, fleetRows(&locks[i])...)
	}
	return output.Table(out, rows)
}

func fleetRows(lock *client.FleetLock) (rows [][]string) {
	name, waiting := lockname.Join(lock.Name), waitingHosts(lock)
	if lock.Many {
		return [][]string{{name, "many", "-", "-", "shared", "-", "-", "-", waiting}}
	}
	for _, h := range lock.Holders {
		rows = append(rows, []string{
			name, output.OrDash(h.Host), output.Count(uint64(h.PID)), output.OrDash(h.User), holderMode(h),
			output.Duration(h.Since), output.Duration(h.TTL), fmt.Sprintf("%d/%d", h.Held, h.Nodes), waiting,
		})
	}
	return rows
}

// waitingHosts names the hosts of the clients that wait: "?" if they are unknown, "-" if no client
// waits.
func waitingHosts(lock *client.FleetLock) string {
	switch {
	case len(lock.WaitingHosts) > 0:
		return strings.Join(lock.WaitingHosts, ",")
	case lock.Wanted:
		return "?"
	}
	return "-"
}

// FleetLockJSON is a line that list --all prints. Its keys never change.
type FleetLockJSON struct {
	Lock         string       `json:"lock"`
	Many         bool         `json:"many"`
	Wanted       bool         `json:"wanted"`
	WaitingHosts []string     `json:"waiting_hosts"`
	Holders      []HolderJSON `json:"holders"`
}

// PrintFleetJSON prints a line for each lock.
func PrintFleetJSON(out io.Writer, locks []client.FleetLock) error {
	for i := range locks {
		l := &locks[i]
		line := FleetLockJSON{
			Lock: lockname.Join(l.Name), Many: l.Many, Wanted: l.Wanted,
			WaitingHosts: append([]string{}, l.WaitingHosts...), Holders: HoldersToJSON(l.Holders),
		}
		if err := output.PrintJSONLine(out, line); err != nil {
			return err
		}
	}
	return nil
}
