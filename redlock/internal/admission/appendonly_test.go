package admission

import (
	"strings"
	"testing"
)

// The first command that the user default may not do is named, and the file is judged
// by each of them. Guards ReadRights.
func TestRightsOfTheFile(t *testing.T) {
	commands := FileCommands("redlock:x")
	for i := range commands {
		answers := make([]DryRun, len(commands))
		for k := range answers {
			if answers[k].Text = "OK"; k >= i {
				answers[k].Text = "no permissions"
			}
		}
		var f AppendOnlyFile
		f.ReadRights(commands, answers, "x")
		if f.loads || !strings.Contains(f.omits, "may not "+commands[i][0]+" ") {
			t.Errorf("from %v on all is denied: loads %v, omits %q", commands[i], f.loads, f.omits)
		}
	}
}
