package admission

import (
	"strings"
	"testing"
)

// The reason names the first command that the default user may not run. The file counts only if
// it may run all of them. Guards ReadRights.
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
		if f.loadsAll || !strings.Contains(f.omitReason, "may not "+commands[i][0]+" ") {
			t.Errorf("from %v on all is denied: loads %v, omits %q", commands[i], f.loadsAll, f.omitReason)
		}
	}
}
