package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/flags"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
)

// minInterval is the shortest interval between two queries.
const minInterval = 100 * time.Millisecond

func newWatchCommand() *cobra.Command {
	w := &watcher{interval: time.Second}
	cmd := &cobra.Command{
		Use:   "watch NAME",
		Short: "Print a line whenever a lock gets another holder",
		Long: `Print who holds a lock, on any host, and then a line for each change, until you stop
this command, as with Ctrl-C, or nothing reads its output. Each --interval, redlockd asks a quorum of the nodes. Holders
that come and go in between are not seen. NAME is one lock; a comma in it is written
%2C, and %2C itself %252C.

If the question fails (redlockd stops, too few nodes answer), the lock is "unknown", and
redlock watch continues. Only the first question must succeed.

With --json, one line for each change: {"time", "lock", "state": "free", "held", "kept"
(for a waiter that is next, as in redlock who) or "unknown", "holders": [as in redlock who],
"error"}.

Exit codes: 64 usage; 69 the daemon is not available, or no quorum of nodes answered,
at the start; 70 internal; 77 denied.`,
		Example: `  redlock watch nightly-backup
  redlock watch nightly-backup --json | jq --unbuffered -r .state`,
		Args:              flags.OneLock,
		ValidArgsFunction: completeNames,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if w.name, err = lockname.One("watch", args[0]); err != nil {
				return err
			}
			w.out = cmd.OutOrStdout()
			if err := checkInterval(w.interval); err != nil {
				return err
			}
			return w.run(cmd.Context())
		},
	}
	flags.JSON(cmd, &w.asJSON)
	cmd.Flags().Var(flags.Duration(&w.interval), "interval", "ask this often")
	noFlagCompletion(cmd, "interval")
	return cmd
}

func checkInterval(every time.Duration) error {
	if every < minInterval {
		return exit.Usagef("--interval %v: at least %v", every, minInterval)
	}
	return nil
}

// watcher prints the changes of a lock.
type watcher struct {
	name     string
	interval time.Duration
	asJSON   bool
	out      io.Writer
}

// run returns when the first query fails, or the output cannot be written.
func (w *watcher) run(ctx context.Context) error {
	before := w.observe(ctx)
	if before.err != nil {
		return before.err
	}
	if err := w.print(before); err != nil {
		return err
	}
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for range ticker.C {
		if term.HasNoReader(w.out) {
			return exit.WithCode(exit.SignalCode(syscall.SIGPIPE)) // as the next line would end it
		}
		now := w.observe(ctx)
		if now.differs(before) {
			if err := w.print(now); err != nil {
				return err
			}
		}
		before = now
	}
	return nil
}

// observation is the answer to one query.
type observation struct {
	asked   time.Time // before the query
	at      time.Time // of the answer
	holders []client.Holder
	err     error
}

func (w *watcher) observe(ctx context.Context) observation {
	asked := time.Now()
	holders, err := fetchHolders(ctx, w.name)
	return observation{asked, time.Now(), holders, err}
}

// differs reports whether the lock has another state or holder than before. A state that stays
// unknown for another reason is not a change.
func (s *observation) differs(before observation) bool {
	if s.err != nil || before.err != nil {
		return (s.err == nil) != (before.err == nil)
	}
	passed := s.asked.Sub(before.at) // at least: this answer was made later, and the one before earlier
	return !slices.EqualFunc(before.holders, s.holders, func(a, b client.Holder) bool { return sameGrant(a, b, passed) })
}

// sameGrant reports whether both holders are one grant: the second has held the lock for longer, by
// the time between the answers, of which at least passed is known. A new grant to the same holder has
// a shorter time.
func sameGrant(before, now client.Holder, passed time.Duration) bool {
	return before.Host == now.Host && before.PID == now.PID && before.User == now.User &&
		before.Mode == now.Mode && before.Slot == now.Slot && before.Waits == now.Waits &&
		(now.Host == "" || now.Since >= before.Since+passed/2)
}

func (w *watcher) print(s observation) error {
	if !w.asJSON {
		return output.PrintText(w.out, fmt.Sprintf("%s  %s\n", s.at.Format(time.DateTime), s.text()))
	}
	line := watchJSON{Time: s.at, Lock: lockname.Join(w.name), State: s.state(), Holders: describe.HoldersToJSON(s.holders)}
	if s.err != nil {
		line.Error = s.err.Error()
	}
	return output.PrintJSONLine(w.out, line)
}

func (s *observation) state() string {
	switch {
	case s.err != nil:
		return "unknown"
	case len(s.holders) == 0:
		return "free"
	case s.isKept():
		return "kept"
	}
	return "held"
}

// isKept reports whether no client holds the lock and the nodes keep it for a waiter.
func (s *observation) isKept() bool {
	return !slices.ContainsFunc(s.holders, func(h client.Holder) bool { return !h.Waits })
}

func (s *observation) text() string {
	switch {
	case s.err != nil:
		return "unknown: " + output.Cell(s.err.Error())
	case len(s.holders) == 0:
		return "free"
	case s.isKept():
		return describe.KeptFor(s.holders[0])
	}
	var words []string
	for _, h := range s.holders {
		words = append(words, describe.HolderSentence(h))
	}
	return "held by " + strings.Join(words, "; ")
}

// watchJSON is the line that watch prints. Its keys never change.
type watchJSON struct {
	Time    time.Time             `json:"time"`
	Lock    string                `json:"lock"`
	State   string                `json:"state"`
	Holders []describe.HolderJSON `json:"holders"`
	Error   string                `json:"error"`
}
