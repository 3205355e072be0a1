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

// FleetText sorts the locks of all hosts by name, and returns a line for each holder.
func FleetText(locks []client.FleetLock) string {
	if len(locks) == 0 {
		return "no host holds a lock that you may see\n"
	}
	slices.SortStableFunc(locks, func(a, b client.FleetLock) int { return strings.Compare(a.Name, b.Name) })
	rows := [][]string{{"LOCK", "HOST", "PID", "USER", "MODE", "SINCE", "TTL", "HELD", "WAITING"}}
	for i := range locks {
		rows = append(rows, fleetRows(&locks[i])...)
	}
	return output.Table(rows)
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

// waitingHosts names the hosts of the clients that wait, in their order and with their waiting times:
// "?" if they are unknown, "-" if no client waits.
func waitingHosts(lock *client.FleetLock) string {
	switch {
	case len(lock.WaitingHosts) > 0:
		hosts := slices.Clone(lock.WaitingHosts)
		for i, waited := range lock.Waiting {
			hosts[i] += " " + output.Duration(waited)
		}
		return strings.Join(hosts, ", ")
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
	WaitingMS    []int64      `json:"waiting_ms"`
	Holders      []HolderJSON `json:"holders"`
}

// PrintFleetJSON prints a line for each lock.
func PrintFleetJSON(out io.Writer, locks []client.FleetLock) error {
	for i := range locks {
		l := &locks[i]
		line := FleetLockJSON{
			Lock: lockname.Join(l.Name), Many: l.Many, Wanted: l.Wanted,
			WaitingHosts: append([]string{}, l.WaitingHosts...), WaitingMS: WaitingToJSON(l), Holders: HoldersToJSON(l.Holders),
		}
		if err := output.PrintJSONLine(out, line); err != nil {
			return err
		}
	}
	return nil
}

// WaitingToJSON returns for how many milliseconds each of the waiting hosts has waited.
func WaitingToJSON(lock *client.FleetLock) []int64 {
	all := make([]int64, len(lock.Waiting))
	for i, waited := range lock.Waiting {
		all[i] = waited.Milliseconds()
	}
	return all
}

// WaitingText returns the line with the hosts that wait for a lock, if there are any.
func WaitingText(lock *client.FleetLock) string {
	if len(lock.WaitingHosts) == 0 {
		return ""
	}
	return "waiting: " + output.Cell(waitingHosts(lock)) + "\n"
}

// HostsBefore says which hosts get the lock before this one: at most the first five by name. It says
// nothing if this host's position is unknown.
func HostsBefore(lock *client.FleetLock) string {
	n := lock.Position - 1
	switch {
	case n < 0 || n > len(lock.WaitingHosts):
		return ""
	case n == 0:
		return "next in the wait queue"
	}
	named := min(n, maxNamed)
	text := fmt.Sprintf("position %d in the wait queue, behind %s", n+1, output.Cell(strings.Join(lock.WaitingHosts[:named], ", ")))
	if n > named {
		text += fmt.Sprintf(" and %d more", n-named)
	}
	return text
}

// maxNamed is how many hosts are named that get the lock earlier.
const maxNamed = 5
