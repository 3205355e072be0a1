package main

import (
	"bytes"
	"context"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
)

func newTopCommand() *cobra.Command {
	t := &top{every: durationFlag(2 * time.Second)}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show nodes, locks, waiters and rates, over and over",
		Long: `Show this host's daemon, over and over, until it is stopped, as with Ctrl-C: its
nodes, the locks that are held or waited for through it, its counts with their
rates since the picture before, and how long it and its nodes took to answer. On
a terminal each picture takes the place of the one before, as far as there is room.

With --json, for each picture one line: {"time", "answer_us", "rates": {"grants",
…}, "status": as redlock status, "locks": as redlock list}. answer_us is how many
microseconds the daemon took to answer. Rates are a second, and there are none in
the first picture. Where the daemon does not answer any more: {"time", "error"}.

Exit codes: 0 after --count pictures; 64 usage; 69 the daemon is not available,
at the beginning; 70 internal; 77 denied.`,
		Example: `  redlock top
  redlock top --count 2 --interval 500ms --json | jq -c .rates`,
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t.out = cmd.OutOrStdout()
			if err := checkInterval(t.every); err != nil {
				return err
			}
			return t.run(cmd.Context())
		},
	}
	jsonFlag(cmd, &t.asJSON)
	cmd.Flags().Var(&t.every, "interval", "look so often")
	cmd.Flags().VarP(&numberFlag{&t.count, "N", 0, math.MaxInt}, "count", "n", "end after N pictures, or with 0 never (default: never)")
	noValues(cmd, "interval", "count")
	return cmd
}

// top shows one picture after the other.
type top struct {
	every  durationFlag
	count  int
	asJSON bool
	out    io.Writer
}

// run returns when all pictures are shown, the first look fails, or the output
// cannot be written.
func (t *top) run(ctx context.Context) error {
	ticker := time.NewTicker(time.Duration(t.every))
	defer ticker.Stop()
	var before *picture
	for n := 1; ; n++ {
		now, err := look(ctx)
		if err != nil && before == nil {
			return err
		}
		if err == nil {
			now.since(before)
			before = now
		}
		if err := t.show(now, err, n == 1); err != nil || n == t.count {
			return err
		}
		<-ticker.C
	}
}

// picture is the daemon at a moment.
type picture struct {
	at       time.Time
	answered time.Duration // how long the daemon took to answer
	hello    client.Hello
	status   *client.Status
	entries  []client.Entry
	rates    map[string]float64 // of counts, a second; nil in the first one
}

// look asks the daemon for a picture.
func look(ctx context.Context) (p *picture, err error) {
	err = ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
		p = &picture{at: time.Now()}
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

// since computes the rates since an earlier picture; nil: there is none. Counts
// that became less began anew with the daemon.
func (p *picture) since(before *picture) {
	if before == nil {
		return
	}
	passed := p.at.Sub(before.at).Seconds()
	p.rates = map[string]float64{}
	for name, n := range p.status.Counts {
		if isGauge(name) {
			continue
		}
		grown := n - before.status.Counts[name]
		if grown < 0 {
			grown = n
		}
		p.rates[name] = float64(grown) / passed
	}
}

// show prints a picture, or why there is none this time.
func (t *top) show(p *picture, missing error, first bool) error {
	if t.asJSON {
		if missing != nil {
			return printJSONLine(t.out, topErrorJSON{time.Now(), missing.Error()})
		}
		return printJSONLine(t.out, p.json())
	}
	var text bytes.Buffer
	if missing != nil {
		text.WriteString(time.Now().Format(time.DateTime) + "  " + cell(missing.Error()) + "\n")
	} else if err := p.print(&text); err != nil {
		return err
	}
	return t.draw(text.Bytes(), first)
}

// draw puts a text in the place of the one before, or, where there is no
// terminal, under it. It leaves the terminal as it is: whatever ends or stops
// this process, there is nothing to clean up.
func (t *top) draw(text []byte, first bool) error {
	var out bytes.Buffer
	s, ok := screenOf(t.out)
	switch {
	case ok:
		s.paint(&out, text, first)
	case first:
		out.Write(text)
	default:
		out.WriteByte('\n')
		out.Write(text)
	}
	_, err := t.out.Write(out.Bytes())
	return unwritten(err)
}

// topJSON is what top prints for programs. Names are never changed.
type topJSON struct {
	Time   time.Time          `json:"time"`
	Answer int64              `json:"answer_us"`
	Rates  map[string]float64 `json:"rates"`
	Status statusJSON         `json:"status"`
	Locks  []entryJSON        `json:"locks"`
}

// topErrorJSON stands for a picture that there is none of.
type topErrorJSON struct {
	Time  time.Time `json:"time"`
	Error string    `json:"error"`
}

func (p *picture) json() topJSON {
	value := topJSON{Time: p.at, Answer: p.answered.Microseconds(), Rates: p.rates, Status: statusJSONOf(p.status), Locks: listJSONOf(p.entries)}
	if value.Rates == nil {
		value.Rates = map[string]float64{}
	}
	return value
}
