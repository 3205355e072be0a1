package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon"
	"github.com/redlockd/redlockd/daemon/config"
)

func TestProcessorsOf(t *testing.T) {
	for all, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 7: 3, 8: 4, 64: 4} {
		if got := processorsOf(all); got != want {
			t.Errorf("with %d processors: %d, want %d", all, got, want)
		}
	}
}

// The daemon uses few processors and little memory, unless the environment says otherwise.
func TestSharesTheHost(t *testing.T) {
	processors, percent := runtime.GOMAXPROCS(0), debug.SetGCPercent(100)
	defer runtime.GOMAXPROCS(processors)
	defer debug.SetGCPercent(percent)
	for _, own := range []bool{true, false} {
		word, wantProcessors := "", 2
		if own {
			word, wantProcessors = "5", 5
		}
		t.Setenv("GOMAXPROCS", word)
		t.Setenv("GOGC", word)
		runtime.GOMAXPROCS(5)
		f := newFixture(t, func(context.Context, *config.Config, hclog.Logger, daemon.RunOptions) error {
			if got := runtime.GOMAXPROCS(0); got != wantProcessors {
				t.Errorf("with GOMAXPROCS in the environment: %v: %d processors, want %d", own, got, wantProcessors)
			}
			return nil
		})
		f.check(t, f.run([]string{"-dev"}), exitOK, "", "")
		if got := debug.SetGCPercent(100); got == 100 && !own {
			t.Error("GOGC was not changed")
		}
	}
}
