package redlocktest

import "testing"

// A power loss takes what the server had not synced: nothing with appendfsync always, and
// everything with appendfsync no. A kill takes nothing.
func TestLosePowerTakesWhatIsNotSynced(t *testing.T) {
	for fsync, want := range map[string]string{"always": "[k]", "no": "[]"} {
		t.Run(fsync, func(t *testing.T) {
			s := StartRedis(t, 1, Unplugged(), Args("--appendonly", "yes", "--appendfsync", fsync)).Servers[0]
			if _, err := s.must("SET", "k", "v"); err != nil {
				t.Fatal(err)
			}
			if err := s.Restart(); err != nil {
				t.Fatal(err)
			}
			wantKeys(t, s, "[k]")
			if _, err := s.must("SET", "k", "v2"); err != nil {
				t.Fatal(err)
			}
			lost, err := s.LosePower()
			if err != nil || (lost > 0) != (fsync == "no") {
				t.Errorf("%d bytes lost, %v", lost, err)
			}
			if err := s.Restart(); err != nil {
				t.Fatal(err)
			}
			wantKeys(t, s, want)
		})
	}
}

func TestLosePowerNeedsUnplugged(t *testing.T) {
	if _, err := StartRedis(t, 1).Servers[0].LosePower(); err == nil {
		t.Error("a server that is not Unplugged lost its power")
	}
}
