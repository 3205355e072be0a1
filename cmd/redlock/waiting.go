package main

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
)

const (
	// explainAfter is how long a wait has to be for a word about it.
	explainAfter = time.Second
	// explainAtMost is how rarely the nodes are asked who holds the lock while
	// nobody watches.
	explainAtMost = 30 * time.Second
)

// waiting says why it takes long to get a lock: each second on one line of a
// terminal, which is wiped in the end; with --verbose a line for each holder;
// otherwise only once, if it is nodes in quarantine that are waited for.
type waiting struct {
	client  *client.Client
	name    string   // as the command line has it
	names   []string // it stands for
	holder  int      // the process that is to hold it
	begin   time.Time
	out     io.Writer
	verbose bool
	shares  bool // with others, who may be what it runs under
	warned  bool // that it may wait for itself

	said  reason // the last one, for those who read lines
	width int    // of what stands on the terminal's line
}

// explainWait says why it takes long, until ctx is done or what it returns is
// called: nothing is said any more once that has returned.
func (j *job) explainWait(ctx context.Context, c *client.Client) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	w := &waiting{client: c, name: j.name, names: j.names, holder: j.holder, begin: time.Now(), out: j.stderr, verbose: j.verbose, shares: j.shares}
	var done sync.WaitGroup
	done.Go(func() { w.run(ctx) })
	return func() {
		cancel()
		done.Wait()
	}
}

func (w *waiting) run(ctx context.Context) {
	defer w.wipe()
	for pause := explainAfter; sleep(ctx, pause); {
		w.warnOfItself(ctx)
		switch columns := columns(w.out); {
		case columns > 0:
			w.draw(w.reason(ctx), columns)
		case w.verbose:
			w.sayOnce(w.reason(ctx))
			pause = min(2*pause, explainAtMost)
		default:
			w.sayOnce(reason{what: w.quarantine(ctx)})
			return
		}
	}
}

// warnOfItself says, once, that it may wait for what it runs under itself.
func (w *waiting) warnOfItself(ctx context.Context) {
	above, err := splitNames(os.Getenv("REDLOCK_NAME"))
	if w.warned || w.shares || err != nil || !slices.ContainsFunc(w.names, func(name string) bool { return slices.Contains(above, name) }) {
		return
	}
	w.warned = true
	if isOver(ctx, above) || ctx.Err() != nil {
		return
	}
	w.wipe()
	w.print("redlock: lock %q: waiting: this runs under it already, as REDLOCK_NAME says: it waits for itself\n", w.name)
}

// isOver tells whether what this was started under is known to be over: what outlives a redlock
// run has its environment for good.
func isOver(ctx context.Context, above []string) bool {
	id := os.Getenv("REDLOCK_LEASE")
	if id == "" {
		return false
	}
	err := ask(ctx, func(ctx context.Context, c *client.Client) error {
		_, err := c.LeaseByID(ctx, id, above...)
		return err
	})
	return errors.Is(err, client.ErrNotHeld) || errors.Is(err, client.ErrLost)
}

// reason is why the lock is not ours yet. since is written the same way twice
// only by chance, as it is counted back from now.
type reason struct {
	what, since   string
	place, queued int // ours, and how many there are; 0: not known
}

// key is the same for the same reason.
func (r reason) key() reason {
	r.since = ""
	return r
}

func (r reason) String() string {
	text := r.what + r.since
	if r.place > 0 {
		text += fmt.Sprintf(", place %d of %d in the queue of this host", r.place, r.queued)
	}
	return text
}

// short is for one line of a terminal, which may be a narrow one: what comes last
// may be cut.
func (r reason) short(waited time.Duration) string {
	wait := waited.Round(time.Second).String()
	if r.place > 0 {
		wait += fmt.Sprintf(", place %d of %d here", r.place, r.queued)
	}
	return fmt.Sprintf("(%s): %s%s", wait, r.what, r.since)
}

// sleep reports false if ctx is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// sayOnce says a reason that is another one than before.
func (w *waiting) sayOnce(r reason) {
	if r.what == "" || r.key() == w.said {
		return
	}
	if w.print("redlock: lock %q: waiting: %v\n", w.name, r) {
		w.said = r.key()
	}
}

// draw puts a reason in the place of what stands on the terminal's line. Where the
// terminal is another job's just now, it is let alone.
func (w *waiting) draw(r reason, columns int) {
	if r.what == "" || !inForeground() {
		return
	}
	line := []rune(fmt.Sprintf("redlock: waiting for %q %s", w.name, r.short(time.Since(w.begin))))
	line = fit(line, columns-1) // a full line would begin another one
	if w.print("\r%s%s", string(line), strings.Repeat(" ", max(0, w.width-len(line)))) {
		w.width = len(line)
	}
}

// fit cuts a line that is too long, and lets that be seen: the beginning of a number, or
// of a host's name, is another one.
func fit(line []rune, room int) []rune {
	if len(line) <= room {
		return line
	}
	const cut = "..."
	kept := max(0, room-len(cut))
	return append(line[:kept:kept], []rune(cut)[:room-kept]...)
}

// wipe leaves the terminal's line as it was.
func (w *waiting) wipe() {
	if w.width > 0 {
		w.print("\r%s\r", strings.Repeat(" ", w.width))
	}
}

// print leaves out what would have to be waited for: the lock may be ours any moment, or a
// signal end the wait.
func (w *waiting) print(format string, args ...any) (done bool) {
	if done = writable(w.out); done {
		fmt.Fprintf(w.out, format, args...)
	}
	return done
}

// reason is why, as far as it can be known within answerTimeout; none if ctx is done.
func (w *waiting) reason(ctx context.Context) reason {
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if text := w.quarantine(within); text != "" {
		return reason{what: text}
	}
	name, holders, err := w.holders(within)
	switch {
	case ctx.Err() != nil:
		return reason{}
	case errors.Is(err, context.DeadlineExceeded):
		return reason{what: "redlockd does not answer who holds it"}
	case err != nil:
		return reason{what: fmt.Sprintf("who holds it is not known: %v", err)}
	}
	r := heldBy(holders)
	if len(w.names) > 1 && len(holders) > 0 {
		r.what = fmt.Sprintf("%q is %s", name, r.what)
	}
	r.place, r.queued = w.place(within)
	return r
}

// holders are those of the first of the locks that is held, or kept for somebody else;
// none: nobody holds any.
func (w *waiting) holders(ctx context.Context) (name string, holders []client.Holder, err error) {
	for _, name = range w.names {
		holders, err = w.client.Who(ctx, name)
		holders = slices.DeleteFunc(holders, w.isKeptForUs)
		if err != nil || len(holders) > 0 {
			break
		}
	}
	return joinNames(name), holders, err
}

func (w *waiting) isKeptForUs(h client.Holder) bool {
	host, _ := os.Hostname()
	return h.Waits && h.PID == w.holder && h.Host == host
}

// quarantine is why there is no quorum yet, "" if it is not that.
func (w *waiting) quarantine(ctx context.Context) string {
	if status, err := w.client.Status(ctx); err == nil && status.Left > 0 {
		return status.Text
	}
	return ""
}

// heldBy says who holds a lock, and since when the first of them does.
func heldBy(holders []client.Holder) reason {
	if len(holders) == 0 {
		return reason{what: "nobody holds it just now"}
	}
	first, more := holders[0], ""
	if n := len(holders) - 1; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	if first.Waits {
		return reason{what: keptFor(first)}
	}
	if first.Host == "" {
		return reason{what: "held by another Redlock client" + more}
	}
	return reason{
		what:  "held by " + holderWord(&first) + more,
		since: " since " + clock(time.Now().Add(-first.Since)),
	}
}

// keptFor says for whom a lock is kept that nobody holds.
func keptFor(h client.Holder) string {
	return fmt.Sprintf("kept for %s, who has waited and is next", holderWord(&h))
}

// holderWord names a holder, by his process too, if his daemon can see that.
func holderWord(h *client.Holder) string {
	who := cell(known(h.User)) + " on " + cell(h.Host)
	if h.PID == 0 {
		return who
	}
	return fmt.Sprintf("%s (pid %d)", who, h.PID)
}

// clock is a moment as people say it, with the day if it was another one.
func clock(at time.Time) string {
	if time.Since(at) < 12*time.Hour {
		return at.Format("15:04:05")
	}
	return at.Format("2006-01-02 15:04")
}

// place is our place among the waiters of this host. Those of other hosts are not
// known here, and where users are kept apart not even all of this one.
func (w *waiting) place(ctx context.Context) (ours, all int) {
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
