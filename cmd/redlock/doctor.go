package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlockd/redlockd/client"
)

func newDoctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what makes locks less safe or less available than they could be",
		Long: `Find what makes locks less safe or less available than they could be, and say how
to mend it: in the way to this host's daemon, in its nodes as it sees them, in what
systemd keeps through its restart, and in this host's clock. Nothing is locked, and
nothing is changed.

A result is ok; warning: locks work, but could be safer, or bear more failures;
or bad: no lock can be taken, or two might hold the same. What the daemon counts
(clock jumps, lost fencing counters) is warned of until it is restarted; brand-new
nodes, which have no counters either, look as if they had lost them.

The checks: socket, daemon, version, table, quorum, node-count, node, same-host,
latency, wake-ups, max-ttl, lease-time, clock-jumps, withdrawals, fencing, restarts,
clock.

With --json: {"result": the worst, "findings": [{"check", "result", "text",
"fix"}]}. A check can find several things.

Exit codes, as monitoring wants them: 0 all is ok; 1 there are warnings; 2 something
is bad. 64 usage; 70 internal.`,
		Example: `  redlock doctor
  redlock doctor --json | jq -r '.findings[] | select(.result != "ok") | .fix'`,
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := examine(cmd.Context())
			if err := printFindings(cmd.OutOrStdout(), findings, asJSON); err != nil {
				return err
			}
			return exit(int(worst(findings)))
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// result is how grave a finding is. Its number is the exit code.
type result int

const (
	ok result = iota
	warning
	bad
)

func (r result) String() string { return [...]string{"ok", "warning", "bad"}[r] }

// finding is what a check has found.
type finding struct {
	check  string
	result result
	text   string
	fix    string // "": none is wanted, or the text says it
}

// patient is what the checks look at.
type patient struct {
	answered time.Duration // how long the daemon took to answer
	hello    client.Hello
	status   *client.Status
}

// examine does all checks that can be done.
func examine(ctx context.Context) []finding {
	var p patient
	findings := checkSocket(socketPath())
	if err := p.ask(ctx); err != nil {
		findings = append(findings, unanswered(err))
	} else {
		findings = append(findings, p.findings()...)
		findings = append(findings, checkMedium(socketPath())...)
	}
	findings = append(findings, checkRestarts(ctx, socketPath(), "systemctl")...)
	return append(findings, checkClock()...)
}

// ask asks the daemon for all that the checks look at.
func (p *patient) ask(ctx context.Context) error {
	return ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
		start := time.Now()
		if p.hello, err = c.Hello(ctx); err != nil {
			return err
		}
		p.answered = time.Since(start)
		p.status, err = c.Status(ctx)
		return err
	})
}

// unanswered is the finding that the daemon does not tell how it is.
func unanswered(err error) finding {
	f := finding{"daemon", bad, err.Error(), "start it (systemctl start redlockd), and see its log (journalctl -u redlockd)"}
	switch {
	case errors.Is(err, fs.ErrPermission):
		f.text, f.fix = "redlockd cannot be asked, as this user may not open its socket", "what is said of the socket"
	case errors.Is(err, fs.ErrNotExist):
		f.fix = "what is said of the socket"
	case errors.Is(err, client.ErrDenied):
		f.fix = "run redlock doctor as a user whom a rule of the config's access block allows something (root is nobody special there)"
	case errors.Is(err, client.ErrLimit):
		f.fix = "end some connections of this user, or raise what the text names, in limits of the config (systemctl reload redlockd)"
	case errors.Is(err, context.DeadlineExceeded):
		f.fix = "see whether it runs (systemctl status redlockd): where it does, restart it (systemctl restart redlockd); where it is started over and over, " +
			"mend its config (redlockd validate names the faults); its log is journalctl -u redlockd"
	}
	return f
}

func worst(findings []finding) (r result) {
	for _, f := range findings {
		r = max(r, f.result)
	}
	return r
}

func printFindings(out io.Writer, findings []finding, asJSON bool) error {
	if asJSON {
		return printJSON(out, findingsJSONOf(findings))
	}
	var rows [][]string
	for _, f := range findings {
		text := f.text
		if f.fix != "" {
			text += "; fix: " + f.fix
		}
		rows = append(rows, []string{f.result.String(), f.check, text})
	}
	return table(out, rows)
}

// findingsJSON is what doctor prints for programs. Names are never changed.
type findingsJSON struct {
	Result   string        `json:"result"`
	Findings []findingJSON `json:"findings"`
}

type findingJSON struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Text   string `json:"text"`
	Fix    string `json:"fix"`
}

func findingsJSONOf(findings []finding) findingsJSON {
	value := findingsJSON{Result: worst(findings).String()}
	for _, f := range findings {
		value.Findings = append(value.Findings, findingJSON{f.check, f.result.String(), f.text, f.fix})
	}
	return value
}
