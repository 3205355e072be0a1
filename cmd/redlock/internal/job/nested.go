package job

import (
	"context"
	"os"
	"slices"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
)

// checkNested returns a failure if this process runs under the lock that it would wait for: the
// redlock run above waits for this process, so the wait would never end.
func (j *Job) checkNested(ctx context.Context, c *client.Client) error {
	if j.Nonblock || j.WaitForSelf {
		return nil
	}
	above, err := lockname.Split(os.Getenv("REDLOCK_NAME"))
	both := slices.DeleteFunc(slices.Clone(j.Names), func(name string) bool { return !slices.Contains(above, name) })
	if err != nil || len(both) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, socket.AnswerTimeout)
	defer cancel()
	// A process that outlives redlock run keeps its environment, so the lock may be free.
	id := os.Getenv("REDLOCK_LEASE")
	if id == "" {
		return nil
	}
	if _, err := c.LeaseByID(ctx, id, above...); err != nil || j.canShare(ctx, c, both) {
		return nil
	}
	return exit.Errorf(j.Conflict, "lock %q: this command already runs under it (REDLOCK_NAME) and would wait for itself: leave this redlock out, or use --wait-for-self if the lock is released meanwhile", j.Name)
}

// canShare reports whether this job's kind of lock fits that of the holders. All holders of a lock
// have the same kind. If the holders are unknown, canShare assumes that it fits.
func (j *Job) canShare(ctx context.Context, c *client.Client, names []string) bool {
	if !j.Shared && j.Slots < 2 {
		return false
	}
	for _, name := range names {
		holders, err := c.Who(ctx, name)
		if err == nil && slices.ContainsFunc(holders, func(h client.Holder) bool {
			return !h.Waits && (j.Shared && h.Mode != "shared" || !j.Shared && h.Slots != j.Slots)
		}) {
			return false
		}
	}
	return true
}
