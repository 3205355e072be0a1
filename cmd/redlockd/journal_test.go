package main

import (
	"context"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon"
	"github.com/redlockd/redlockd/daemon/config"
)

// If an operator filters the journal for warnings, they see what keeps redlockd from starting.
// That includes each config fault, though there is no log yet.
func TestFaultsInTheJournal(t *testing.T) {
	f := newFixture(t, nil)
	f.journal = true
	name := writeConfig(t, faultyConfig)
	f.check(t, f.run([]string{"-config", name}), exitFailed, "", "<3>"+name+":2:13: ")
	if lines := strings.Count(f.err.String(), "\n"); lines < 2 || strings.Count("\n"+f.err.String(), "\n<3>") != lines {
		t.Errorf("got %q, want several lines with <3> before each", f.err.String())
	}
	f = newFixture(t, nil)
	f.run([]string{"-config", name})
	if strings.Contains(f.err.String(), "<") {
		t.Errorf("without the journal: got %q, want no <3>", f.err.String())
	}
}

// Log lines have a priority in the journal, and not elsewhere.
func TestLogInTheJournal(t *testing.T) {
	for journal, want := range map[bool]string{true: "<4>[WARN]  careful\n", false: " [WARN]  careful\n"} {
		f := newFixture(t, func(_ context.Context, _ *config.Config, log hclog.Logger, _ daemon.RunOptions) error {
			log.Warn("careful")
			return nil
		})
		f.journal = journal
		f.check(t, f.run([]string{"-dev"}), exitOK, "", want)
	}
}
