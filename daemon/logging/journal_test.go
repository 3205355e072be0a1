package logging

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// written returns the output of what say logs through a Writer.
func written(t *testing.T, make func(*bytes.Buffer) *Writer, format Format, say func(hclog.Logger)) string {
	t.Helper()
	var out bytes.Buffer
	w := make(&out)
	say(New(w, hclog.Trace, format))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func toJournal(to *bytes.Buffer) *Writer { return NewJournalWriter(to) }
func toFile(to *bytes.Buffer) *Writer    { return NewWriter(to) }

// Each level has its own priority in both formats, also after a reload changes the format. The text
// has no time, because the journal adds it.
func TestJournalPriorities(t *testing.T) {
	levels := func(log hclog.Logger) {
		log = log.Named("x") // a derived logger, as parts of the daemon have
		log.Error("e")
		log.Warn("w")
		log.Info("i")
		log.Debug("d")
		log.Trace("t")
	}
	got := written(t, toJournal, Text, levels)
	if want := "<3>[ERROR] x: e\n<4>[WARN]  x: w\n<6>[INFO]  x: i\n<7>[DEBUG] x: d\n<7>[TRACE] x: t\n"; got != want {
		t.Errorf("as text: got\n%s\nwant\n%s", got, want)
	}
	got = written(t, toJournal, Text, func(log hclog.Logger) {
		derived := log.Named("x")
		SetFormat(log, JSON)
		levels(derived)
	})
	want := regexp.MustCompile(`^<3>\{"@level":"error".*"@timestamp":"20.*\}\n<4>\{.*"warn".*\n<6>\{.*"info".*\n<7>\{.*"debug".*\n<7>\{.*"trace".*\}\n$`)
	if !want.MatchString(got) {
		t.Errorf("as JSON: got\n%s\nwant\n%v", got, want)
	}
}

// An output that is not the journal, such as a file, gets the time and no priorities.
func TestNoPrioritiesOutsideTheJournal(t *testing.T) {
	got := written(t, toFile, Text, func(log hclog.Logger) { log.Warn("w", "text", "several\nlines") })
	if want := regexp.MustCompile(`^20\S+ \[WARN\]  w:\n  text=\n  \| several\n  \| lines\n  \n$`); !want.MatchString(got) {
		t.Errorf("got %q, want %v", got, want)
	}
	got = written(t, toFile, JSON, func(log hclog.Logger) { log.Warn("w") })
	if want := regexp.MustCompile(`^\{"@level":"warn","@message":"w","@timestamp":.*\}\n$`); !want.MatchString(got) {
		t.Errorf("got %q, want %v", got, want)
	}
}

// Every line of an entry has its priority, also a line that ends with NUL, which only the journal
// takes for an end. The journal takes nothing in the entry for a priority.
func TestJournalLines(t *testing.T) {
	for entry, want := range map[string]string{
		"":                "",
		"one":             "<4>one\n",
		"one\ntwo\n":      "<4>one\n<4>two\n",
		"<7>one\n<0>two":  "<4><7>one\n<4><0>two\n",
		"one\x00<0>two\n": "<4>one\n<4><0>two\n",
		"one\n\n<0>\n":    "<4>one\n<4><0>\n",
	} {
		if got := string(JournalLines(hclog.Warn, []byte(entry))); got != want {
			t.Errorf("%q: got %q, want %q", entry, got, want)
		}
	}
	long := strings.Repeat("<0>0123456789abc", 10_000)
	lines := strings.Split(strings.TrimSuffix(string(JournalLines(hclog.Error, []byte(long))), "\n"), "\n")
	for i, line := range lines {
		rest, marked := strings.CutPrefix(line, "<3>")
		if !marked || len(line) > 48<<10 {
			t.Errorf("a line of %d bytes begins with %.10s, want at most 48 KiB, and <3>", len(line), line)
		}
		lines[i] = rest
	}
	if strings.Join(lines, "") != long {
		t.Error("a part of a long line is missing")
	}
}

// A client or a node can send text with line ends. It cannot forge a log line with them.
func TestJournalEntriesOfSeveralLines(t *testing.T) {
	for _, format := range []Format{Text, JSON} {
		got := written(t, toJournal, format, func(log hclog.Logger) {
			log.Warn("up\n<0>down", "reason", "ERR\n<0>forged\x00<0>", "list", []string{"a\n<0>"})
		})
		for line := range strings.Lines(got) {
			if !strings.HasPrefix(line, "<4>") || strings.ContainsRune(line, 0) {
				t.Errorf("%s: got the line %q, want it to begin with <4>, and no NUL", format, line)
			}
		}
		if !strings.Contains(got, "forged") {
			t.Errorf("%s: got %q, want all of it", format, got)
		}
	}
}

// The line that reports dropped lines has the priority of a warning.
func TestJournalDroppedLines(t *testing.T) {
	to := &blockedWriter{released: make(chan struct{})}
	w := NewJournalWriter(to)
	for range 2 * maxQueued {
		w.Write([]byte("line\n"))
	}
	close(to.released)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := to.String(); !strings.HasPrefix(got, "<6>line\n") || !regexp.MustCompile(`\n<4>\d+ log lines were dropped`).MatchString(got) {
		t.Errorf("got %.40q..., want <6>line, and <4> before the report of dropped lines", got)
	}
}
