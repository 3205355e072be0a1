package top

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
	"github.com/redlockd/redlockd/cmd/redlock/internal/term"
)

// Loop shows frames until it ends. The caller sets the fields.
type Loop struct {
	Every  time.Duration
	Count  int
	AsJSON bool
	Out    io.Writer
}

// Run returns when all frames are shown, the first query fails, or the output cannot be written.
func (t *Loop) Run(ctx context.Context) error {
	ticker := time.NewTicker(t.Every)
	defer ticker.Stop()
	var before *Frame
	for n := 1; ; n++ {
		now, err := fetchFrame(ctx)
		if err != nil && before == nil {
			return err
		}
		if err == nil {
			now.computeRates(before)
			before = now
		}
		if err := t.show(now, err, n == 1); err != nil || n == t.Count {
			return err
		}
		<-ticker.C
	}
}

// show prints a frame, or the error if there is none.
func (t *Loop) show(p *Frame, missing error, first bool) error {
	if t.AsJSON {
		if missing != nil {
			return output.PrintJSONLine(t.Out, ErrorJSON{time.Now(), missing.Error()})
		}
		return output.PrintJSONLine(t.Out, p.toJSON())
	}
	var text string
	if missing != nil {
		text = time.Now().Format(time.DateTime) + "  " + output.Cell(missing.Error()) + "\n"
	} else {
		text = p.text()
	}
	s, ok := term.ScreenOf(t.Out)
	switch {
	case ok:
		var out bytes.Buffer
		s.Paint(&out, []byte(text), first)
		text = out.String()
	case !first:
		text = "\n" + text
	}
	return output.PrintText(t.Out, text)
}
