package redlock

import (
	"strings"
	"testing"
)

// The first command that the user default may not do is named, and the file is judged
// by each of them. Guards readRights.
func TestRightsOfTheFile(t *testing.T) {
	commands := filed("redlock:x")
	for i := range commands {
		replies := make([]Reply, len(commands))
		for k := range replies {
			if replies[k].Str = "OK"; k >= i {
				replies[k].Str = "no permissions"
			}
		}
		var f appendOnly
		f.readRights(commands, replies)
		if f.loads || !strings.Contains(f.leaves, "may not "+commands[i][0]+" ") {
			t.Errorf("from %v on all is denied: loads %v, leaves %q", commands[i], f.loads, f.leaves)
		}
	}
}
