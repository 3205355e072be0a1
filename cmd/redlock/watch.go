package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
)

// leastInterval bounds how often a command that repeats a question asks it.
const leastInterval = 100 * time.Millisecond

func newWatchCommand() *cobra.Command {
	w := &watcher{every: durationFlag(time.Second)}
	cmd := &cobra.Command{
		Use:   "watch NAME",
		Short: "Print a line whenever a lock changes hands, until it is stopped",
		Long: `Print who holds a lock, on whatever host, and then a line whenever that changes,
until it is stopped, as with Ctrl-C. A quorum of the nodes is asked at each
--interval: who came and went in between is not seen. NAME is one lock; a comma in it
is written %2C.

Where nobody can be asked (redlockd stops, too few nodes answer) the lock is
"unknown", and it goes on asking. Only the first question has to be answered.

With --json, for each change one line: {"time", "lock", "state": "free", "held",
"kept" (as in redlock who: for one who is next) or "unknown", "holders": [as in redlock who], "error"}.

Exit codes: 64 usage; 69 the daemon is not available, or no quorum of nodes
answered, at the beginning; 70 internal; 77 denied.`,
		Example: `  redlock watch nightly-backup
  redlock watch nightly-backup --json | jq --unbuffered -r .state`,
		Args:              oneLock,
		ValidArgsFunction: completeNames,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if w.name, err = oneName("watch", args[0]); err != nil {
				return err
			}
			w.out = cmd.OutOrStdout()
			if err := checkInterval(w.every); err != nil {
				return err
			}
			return w.run(cmd.Context())
		},
	}
	jsonFlag(cmd, &w.asJSON)
	cmd.Flags().Var(&w.every, "interval", "ask so often")
	noValues(cmd, "interval")
	return cmd
}

func checkInterval(every durationFlag) error {
	if time.Duration(every) < leastInterval {
		return usage("--interval %v: at least %v", time.Duration(every), leastInterval)
	}
	return nil
}

// watcher prints the changes of a lock.
type watcher struct {
	name   string
	every  durationFlag
	asJSON bool
	out    io.Writer
}

// run returns when the first look fails, or the output cannot be written.
func (w *watcher) run(ctx context.Context) error {
	before := w.look(ctx)
	if before.err != nil {
		return before.err
	}
	if err := w.print(before); err != nil {
		return err
	}
	ticker := time.NewTicker(time.Duration(w.every))
	defer ticker.Stop()
	for range ticker.C {
		now := w.look(ctx)
		if now.differs(before) {
			if err := w.print(now); err != nil {
				return err
			}
		}
		before = now
	}
	return nil
}

// sight is what one look at a lock has shown.
type sight struct {
	at      time.Time
	holders []client.Holder
	err     error
}

func (w *watcher) look(ctx context.Context) sight {
	holders, err := fetchHolders(ctx, w.name)
	return sight{time.Now(), holders, err}
}

// differs tells whether the lock has changed hands since before. What is unknown
// for another reason than before is no change.
func (s *sight) differs(before sight) bool {
	if s.err != nil || before.err != nil {
		return (s.err == nil) != (before.err == nil)
	}
	passed := s.at.Sub(before.at)
	return !slices.EqualFunc(before.holders, s.holders, func(a, b client.Holder) bool { return sameGrant(a, b, passed) })
}

// sameGrant tells whether a holder is the one of before: it has held the lock for
// as much longer as has passed, give or take what answers took. Who took the lock
// again has held it for less than that.
func sameGrant(before, now client.Holder, passed time.Duration) bool {
	return before.Host == now.Host && before.PID == now.PID && before.User == now.User &&
		before.Mode == now.Mode && before.Slot == now.Slot && before.Waits == now.Waits &&
		(now.Host == "" || now.Since >= before.Since+passed/2)
}

func (w *watcher) print(s sight) error {
	if w.asJSON {
		return printJSONLine(w.out, w.jsonOf(s))
	}
	_, err := fmt.Fprintf(w.out, "%s  %s\n", s.at.Format(time.DateTime), s.text())
	return unwritten(err)
}

func (s *sight) state() string {
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

// isKept: nobody holds the lock, but it goes to nobody else than who is shown.
func (s *sight) isKept() bool {
	return !slices.ContainsFunc(s.holders, func(h client.Holder) bool { return !h.Waits })
}

func (s *sight) text() string {
	switch {
	case s.err != nil:
		return "unknown: " + cell(s.err.Error())
	case len(s.holders) == 0:
		return "free"
	case s.isKept():
		return keptFor(s.holders[0])
	}
	var words []string
	for _, h := range s.holders {
		words = append(words, holderText(h))
	}
	return "held by " + strings.Join(words, "; ")
}

// holderText is a holder in a sentence.
func holderText(h client.Holder) string {
	mode := modeOf(h.Mode, h.Slots, h.Slot)
	if h.Host == "" {
		return fmt.Sprintf("another Redlock client, which does not say who it is (%s)", mode)
	}
	var process string
	if h.PID != 0 { // 0: his daemon does not see it
		process = fmt.Sprintf("pid %d, ", h.PID)
	}
	return fmt.Sprintf("%s on %s (%s%s, for %s)", cell(h.User), cell(h.Host), process, mode, known(short(h.Since)))
}

// watchJSON is what watch prints for programs. Names are never changed.
type watchJSON struct {
	Time    time.Time    `json:"time"`
	Lock    string       `json:"lock"`
	State   string       `json:"state"`
	Holders []holderJSON `json:"holders"`
	Error   string       `json:"error"`
}

func (w *watcher) jsonOf(s sight) watchJSON {
	line := watchJSON{Time: s.at, Lock: joinNames(w.name), State: s.state(), Holders: holdersJSONOf(s.holders)}
	if s.err != nil {
		line.Error = s.err.Error()
	}
	return line
}
