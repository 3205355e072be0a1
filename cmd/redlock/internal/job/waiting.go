package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
)

const (
	// explainAfter is how long a wait takes before redlock run explains it.
	explainAfter = time.Second
	// explainAtMost is the longest pause between two queries to the nodes if the output is no
	// terminal.
	explainAtMost = 30 * time.Second
)

// waiting explains a long wait for a lock. On a terminal it redraws one line each second, and wipes
// it at the end. It prints text that is too long for that line above it, once. Without a terminal
// it prints a line for each new holder or position with --verbose. Otherwise it prints one line, only if
// no quorum of nodes votes.
type waiting struct {
	client  *client.Client
	name    string   // as on the command line
	names   []string // the names in it
	holder  int      // the process that waits
	begin   time.Time
	out     io.Writer
	verbose bool
	looks   int  // how often quietReason looked
	outage  bool // at the last look, no quorum voted

	printed reason // the last reason printed as a line
	width   int    // of the text on the terminal's line
}

// explainWait starts a goroutine that explains the wait until ctx is done or end is called.
// end waits for the goroutine: nothing is printed after it returns.
func (j *Job) explainWait(ctx context.Context, c *client.Client) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	w := &waiting{client: c, name: j.Name, names: j.Names, holder: j.Holder, begin: time.Now(), out: j.Stderr, verbose: j.Verbose}
	var done sync.WaitGroup
	done.Go(func() { w.run(ctx) })
	return func() {
		cancel()
		done.Wait()
	}
}

func (w *waiting) run(ctx context.Context) {
	defer w.clearLine()
	for pause := explainAfter; sleep(ctx, pause); {
		switch columns := term.Columns(w.out); {
		case columns > 0:
			w.draw(w.reason(ctx), columns)
		case w.verbose:
			w.printOnce(w.reason(ctx))
			pause = min(2*pause, explainAtMost)
		default:
			r := w.quietReason(ctx)
			w.printOnce(r)
			if r.what != "" {
				return
			}
			if pause = min(2*pause, explainAtMost); w.outage {
				pause = explainAfter
			}
		}
	}
}

// reason says why the lock is not granted yet. Two equal reasons rarely have the same since,
// because it is computed from the current time.
type reason struct {
	what, since      string
	detail           string // too long for the line of a terminal
	hosts            string // which hosts get the lock earlier; "": unknown
	position, queued int    // in the wait queue of this host, and its length; 0: unknown
}

// key returns what two equal reasons have in common.
func (r reason) key() reason {
	if r.since = ""; r.detail != "" {
		r.what = "" // has the remaining time
	}
	return r
}

func (r reason) String() string {
	text := r.what + r.since
	if r.detail != "" {
		text += ": " + r.detail
	}
	if r.hosts != "" {
		text += ", " + r.hosts
	}
	if r.position > 0 {
		text += fmt.Sprintf(", place %d of %d in the queue of this host", r.position, r.queued)
	}
	return text
}

// lines returns texts for the line of a terminal, the longest first. Each one omits the least
// important part of the previous one: the hosts before this one, since when the lock is held, then the
// position, then the lock, which the user has typed.
func (r reason) lines(name string, waited time.Duration) []string {
	wait, hosts, position := waited.Round(time.Second), "", ""
	if r.hosts != "" {
		hosts = ", " + r.hosts
	}
	if r.position > 0 {
		position = fmt.Sprintf(", place %d of %d here", r.position, r.queued)
	}
	return []string{
		fmt.Sprintf("redlock: waiting for %q (%v%s): %s%s%s", name, wait, position, r.what, r.since, hosts),
		fmt.Sprintf("redlock: waiting for %q (%v%s): %s%s", name, wait, position, r.what, r.since),
		fmt.Sprintf("redlock: waiting for %q (%v%s): %s", name, wait, position, r.what),
		fmt.Sprintf("redlock: waiting for %q (%v): %s", name, wait, r.what),
		fmt.Sprintf("redlock: waiting (%v): %s", wait, r.what),
	}
}

// sleep returns false if ctx is done before d has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// printOnce prints a reason unless it was also the previous one.
func (w *waiting) printOnce(r reason) {
	if r.what == "" || r.key() == w.printed {
		return
	}
	if w.print("redlock: lock %q: waiting: %v\n", w.name, r) {
		w.printed = r.key()
	}
}

// draw replaces the text on the terminal's line. While another job is in the terminal's foreground,
// it does nothing.
func (w *waiting) draw(r reason, columns int) {
	if r.what == "" || !term.InForeground() {
		return
	}
	if r.detail != "" && r.key() != w.printed {
		w.clearLine()
		w.printOnce(r)
	}
	line := fit(r.lines(w.name, time.Since(w.begin)), columns-1) // a full line would wrap
	if w.print("\r%s%s", string(line), strings.Repeat(" ", max(0, w.width-len(line)))) {
		w.width = len(line)
	}
}

// fit returns the first line that is short enough, or cuts the last one.
func fit(lines []string, room int) (line []rune) {
	for _, text := range lines {
		if line = []rune(text); len(line) <= room {
			return line
		}
	}
	return truncate(line, room)
}

// truncate cuts a line that is too long and marks the cut. Otherwise a cut number or host name
// could look like another one.
func truncate(line []rune, room int) []rune {
	if len(line) <= room {
		return line
	}
	const cut = "..."
	kept := max(0, room-len(cut))
	return append(line[:kept:kept], []rune(cut)[:room-kept]...)
}

// clearLine clears the terminal's line.
func (w *waiting) clearLine() {
	if w.width > 0 {
		w.print("\r%s\r", strings.Repeat(" ", w.width))
	}
}

// print returns false and prints nothing if the write could block: at any moment the lock may be
// granted, or a signal may end the wait.
func (w *waiting) print(format string, args ...any) (done bool) {
	if done = term.Writable(w.out); done {
		fmt.Fprintf(w.out, format, args...)
	}
	return done
}

// reason asks the daemon why the lock is not granted yet, within socket.AnswerTimeout. If ctx is
// done, it returns no reason.
func (w *waiting) reason(ctx context.Context) reason {
	within, cancel := context.WithTimeout(ctx, socket.AnswerTimeout)
	defer cancel()
	if r, _ := w.noQuorum(within); r.what != "" {
		return r
	}
	name, lock, err := w.heldLock(within)
	switch {
	case ctx.Err() != nil:
		return reason{}
	case errors.Is(err, context.DeadlineExceeded):
		return reason{what: "redlockd does not say who holds it"}
	case err != nil:
		return reason{what: fmt.Sprintf("the holder is unknown: %v", err)}
	}
	r := heldReason(lock.Holders)
	if len(w.names) > 1 && len(lock.Holders) > 0 {
		r.what = fmt.Sprintf("%q is %s", name, r.what)
	}
	r.hosts = describe.HostsBefore(lock)
	r.position, r.queued = w.position(within)
	return r
}

// heldLock returns the first lock that is held, or kept for another waiter. If all are free, it
// returns the last one.
func (w *waiting) heldLock(ctx context.Context) (name string, lock *client.FleetLock, err error) {
	for _, name = range w.names {
		if lock, err = w.client.WhoWaits(ctx, name); err != nil {
			break
		}
		lock.Holders = slices.DeleteFunc(lock.Holders, w.isKeptForUs)
		if len(lock.Holders) > 0 {
			break
		}
	}
	return lockname.Join(name), lock, err
}

func (w *waiting) isKeptForUs(h client.Holder) bool {
	host, _ := os.Hostname()
	return h.Waits && h.PID == w.holder && h.Host == host
}

// noQuorum returns the daemon's text if no quorum of nodes votes, otherwise no reason. quarantined
// means that only quarantined nodes are missing.
func (w *waiting) noQuorum(ctx context.Context) (r reason, quarantined bool) {
	status, err := w.client.Status(ctx)
	if err != nil || status.Spare >= 0 {
		return r, false
	}
	r.what, r.detail, _ = strings.Cut(status.Text, ": ")
	return r, status.Left > 0
}

// quietReason returns a reason that is worth a line without --verbose: nodes in quarantine, or no
// quorum at two looks in a row, because a short outage does not matter. The second look also asks
// the nodes for this lock: they may refuse this one alone, for example a key of another program.
func (w *waiting) quietReason(ctx context.Context) reason {
	within, cancel := context.WithTimeout(ctx, socket.AnswerTimeout)
	defer cancel()
	w.looks++
	r, quarantined := w.noQuorum(within)
	if r.what == "" && w.looks == 2 {
		if _, _, err := w.heldLock(within); errors.Is(err, client.ErrNoQuorum) {
			return reason{what: "no quorum", detail: err.Error()}
		}
	}
	before := w.outage
	if w.outage = r.what != ""; quarantined || before {
		return r
	}
	return reason{}
}

// heldReason names the holders of a lock, and since when the first one holds it.
func heldReason(holders []client.Holder) reason {
	if len(holders) == 0 {
		return reason{what: "nobody holds it at the moment"}
	}
	first, more := holders[0], ""
	if n := len(holders) - 1; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	if first.Waits {
		return reason{what: describe.KeptFor(first)}
	}
	if first.Host == "" {
		return reason{what: "held by another Redlock client" + more}
	}
	return reason{
		what:  "held by " + describe.HolderName(&first) + more,
		since: " since " + timeOfDay(time.Now().Add(-first.Since)),
	}
}

// timeOfDay formats a time, with its date if it is more than 12 hours ago.
func timeOfDay(at time.Time) string {
	if time.Since(at) < 12*time.Hour {
		return at.Format("15:04:05")
	}
	return at.Format("2006-01-02 15:04")
}

// position returns the position in the wait queue of this host, and its length. The daemon does not
// know waiters of other hosts, and may hide waiters of other users.
func (w *waiting) position(ctx context.Context) (ours, all int) {
	entries, err := w.client.List(ctx)
	if err != nil {
		return 0, 0
	}
	for _, e := range entries {
		if !e.Waits || !slices.Equal(e.Names, w.names) {
			continue
		}
		all++
		if e.PID == w.holder {
			ours = all
		}
	}
	return ours, all
}
