package top

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
)

// text returns the frame for people, the most important first, because the screen may cut the end.
func (p *Frame) text() string {
	return fmt.Sprintf("%s  redlockd %s answered in %s\n%s\n%s\n%s\n\n%s\n%s", p.at.Format(time.DateTime), output.Cell(p.hello.Version),
		output.PreciseDuration(p.answered), describe.Verdict(p.status), strings.Join(describe.Gauges(p.status), ", "), p.totalsLine(),
		describe.NodesText(p.status.Nodes), describe.LocksText(p.sortedLocks()))
}

// totalsLine returns the counts since the daemon's start.
func (p *Frame) totalsLine() string {
	return cmp.Or(strings.Join(describe.Totals(p.status, p.rates), ", "), "nothing has happened yet")
}

// sortedLocks returns the waiters, then the holders, each with the longest first.
func (p *Frame) sortedLocks() []client.Entry {
	entries := slices.Clone(p.entries)
	slices.SortStableFunc(entries, func(a, b client.Entry) int {
		switch {
		case a.Waits && !b.Waits:
			return -1
		case b.Waits && !a.Waits:
			return 1
		}
		return cmp.Compare(b.Since, a.Since)
	})
	return entries
}

// Frame is the state of the daemon at one moment.
type Frame struct {
	at       time.Time
	answered time.Duration // how long the daemon took to answer
	hello    client.Hello
	status   *client.Status
	entries  []client.Entry
	rates    map[string]float64 // of counts, per second; nil in the first frame
}

// fetchFrame asks the daemon for a frame.
func fetchFrame(ctx context.Context) (p *Frame, err error) {
	err = socket.Ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
		p = &Frame{at: time.Now()}
		p.status, err = c.Status(ctx)
		p.answered = time.Since(p.at)
		if err == nil {
			p.entries, err = c.List(ctx)
		}
		if err == nil {
			p.hello, err = c.Hello(ctx)
		}
		return err
	})
	return p, err
}

// computeRates computes the rates since the previous frame, which may be nil. If a count fell, the
// daemon was restarted.
func (p *Frame) computeRates(before *Frame) {
	if before == nil {
		return
	}
	passed := p.at.Sub(before.at).Seconds()
	p.rates = map[string]float64{}
	for name, n := range p.status.Counts {
		if describe.IsGauge(name) {
			continue
		}
		grown := n - before.status.Counts[name]
		if grown < 0 {
			grown = n
		}
		p.rates[name] = float64(grown) / passed
	}
}
