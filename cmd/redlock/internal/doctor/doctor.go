package doctor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
)

// Result is the severity of a finding. Its number is the exit code.
type Result int

const (
	OK Result = iota
	Warning
	Bad

	// Ignored is the result of a finding that the operator acknowledged (--ignore, or doctor.ignore
	// of the config). It does not affect the exit code.
	Ignored Result = -1
)

func (r Result) String() string { return [...]string{"ignored", "ok", "warning", "bad"}[r-Ignored] }

// Checks are the names of all checks.
var Checks = []string{
	"socket", "daemon", "version", "table", "quorum", "node-change", "node-count", "node", "persistence", "same-host", "latency", "wake-ups",
	"max-ttl", "lease-time", "clock-jumps", "withdrawals", "fencing", "restarts", "clock", "names",
}

// Ignore marks the findings of the checks as ignored, except bad ones: then no lock can be taken,
// or two processes might hold the same lock.
func Ignore(findings []Finding, checks []string) {
	for i := range findings {
		if f := &findings[i]; f.result == Warning && slices.Contains(checks, f.check) {
			f.result = Ignored
		}
	}
}

// Finding is a result of a check.
type Finding struct {
	check  string
	result Result
	text   string
	fix    string // what to do; empty if nothing, or if the text says it
}

// snapshot is the data for the checks of the daemon and its nodes.
type snapshot struct {
	version  string        // of this program
	answered time.Duration // how long the daemon took to answer
	hello    client.Hello
	status   *client.Status
	entries  []client.Entry // what the user may see
}

// Examine runs all checks. It also returns the checks that the config of the daemon ignores.
func Examine(ctx context.Context, version string) (findings []Finding, ignored []string) {
	p := snapshot{version: version}
	findings = checkSocket(socket.Path())
	if err := p.fetch(ctx); err != nil {
		findings = append(findings, unreachable(err))
	} else {
		findings = append(findings, p.findings()...)
		findings = append(findings, checkStateFile(socket.Path())...)
	}
	findings = append(findings, checkRestarts(ctx, socket.Path(), "systemctl")...)
	if p.status != nil {
		ignored = p.status.DoctorIgnore
	}
	return append(findings, checkClock()...), ignored
}

// fetch asks the daemon for the data of the checks.
func (p *snapshot) fetch(ctx context.Context) error {
	return socket.Ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
		start := time.Now()
		if p.hello, err = c.Hello(ctx); err != nil {
			return err
		}
		p.answered = time.Since(start)
		if p.status, err = c.Status(ctx); err != nil {
			return err
		}
		p.entries, _ = c.List(ctx) // without them checkNames finds nothing
		return nil
	})
}

// unreachable reports that the daemon did not answer.
func unreachable(err error) Finding {
	f := Finding{"daemon", Bad, err.Error(), "start it (systemctl start redlockd), and see its log (journalctl -u redlockd)"}
	switch {
	case errors.Is(err, fs.ErrPermission):
		f.text, f.fix = "redlockd cannot be asked, because this user may not open its socket", "see the finding about the socket"
	case errors.Is(err, fs.ErrNotExist):
		f.text, f.fix = "redlockd cannot be asked", "see the finding about the socket"
	case errors.Is(err, syscall.ECONNREFUSED):
		f.text = "nobody listens on the socket"
	case errors.Is(err, client.ErrDenied):
		f.fix = "run redlock doctor as a user that has a right by a rule of the config's access block (root needs one, too)"
	case errors.Is(err, client.ErrLimit):
		f.fix = "end some connections of this user, or raise the limit that the text names, in limits of the config (systemctl reload redlockd)"
	case errors.Is(err, context.DeadlineExceeded):
		f.fix = "see whether it runs (systemctl status redlockd): if it does, restart it (systemctl restart redlockd); if it is restarted repeatedly, " +
			"fix its config (redlockd validate names the faults); its log is journalctl -u redlockd"
	}
	return f
}

func Worst(findings []Finding) (r Result) {
	for _, f := range findings {
		r = max(r, f.result)
	}
	return r
}

func Print(out io.Writer, findings []Finding, asJSON bool) error {
	value := JSON{Result: Worst(findings).String()}
	var rows [][]string
	for _, f := range findings {
		text := f.text
		if f.fix != "" {
			text += "; fix: " + f.fix
		}
		rows = append(rows, []string{f.result.String(), f.check, text})
		value.Findings = append(value.Findings, FindingJSON{f.check, f.result.String(), f.text, f.fix})
	}
	return output.Show(out, asJSON, value, output.Table(rows))
}

// JSON is the document that doctor prints. Its keys never change.
type JSON struct {
	Result   string        `json:"result"`
	Findings []FindingJSON `json:"findings"`
}

type FindingJSON struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Text   string `json:"text"`
	Fix    string `json:"fix"`
}
