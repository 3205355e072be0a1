package session

import (
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/ipc"
)

// Requests that keep or release a lock are never refused, and do not count towards the rate.
// Without a limit, no request is refused.
func TestRateNeverRefusesWhatKeepsOrReleases(t *testing.T) {
	d := &Host{Clock: func() time.Duration { return time.Hour }, Limits: access.NewLimits(config.Limits{RequestsPerSecond: 1})}
	s := &session{host: d}
	for range 2 {
		for _, verb := range []ipc.Verb{ipc.VerbUnlock, ipc.VerbCancel, ipc.VerbQuit, ipc.VerbBeat, ipc.VerbExtend} {
			if s.tooFast(verb) {
				t.Errorf("%v is refused", verb)
			}
		}
	}
	if s.tooFast(ipc.VerbPing) || !s.tooFast(ipc.VerbPing) {
		t.Error("want exactly one PING a second")
	}
	d.Limits.Set(config.Limits{})
	if s.tooFast(ipc.VerbPing) {
		t.Error("PING is refused without a limit")
	}
}
