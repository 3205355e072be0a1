package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
)

// In a time namespace whose clock is ahead of the daemon's, redlock run and the deadlines that it
// prints work as elsewhere.
func TestTimeNamespace(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can make a time namespace")
	}
	const ahead = "unshare --time --boottime 360000 --fork "
	if out, err := exec.Command("sh", "-c", ahead+"true").CombinedOutput(); err != nil {
		t.Skipf("no time namespace: %s", out)
	}
	_, socket := cmdtest.StartDaemon(t)
	p := startScript(t, "sh", socket, ahead+`sh -c '
		redlock run -t 2s job -c "sleep 2.5; echo in"
		read up _ < /proc/uptime; eval "$(redlock lock --print --pid $$ job)"
		test $REDLOCK_DEADLINE -gt ${up%.*}000 && redlock check job && echo held'`)
	p.ExpectLine("in")
	p.ExpectLine("held")
	p.ExpectExit(0)
}
