package session

import (
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
)

// NODES of a daemon without a change shows the nodes, and refuses to commit or undo one. The log says
// so. packaging/e2e has tests of changes.
func TestNodesWithoutChange(t *testing.T) {
	t.Parallel() // it mostly waits
	var log daemontest.Log
	w := startDaemon(t, 3, nil).anotherWithLog(logging.New(&log, hclog.Info, logging.Text)).dial()
	w.Say("NODES", `- node=a address=\S+ state=ready`)
	w.Want(`- node=b .*`)
	w.Want(`- node=c .*`)
	w.Want(`OK n=3 : no change of the nodes is in progress`)
	w.Say("NODES commit", `ERR OPTION : the nodes cannot be changed now: this host's config has no joining or leaving nodes`)
	w.Say("NODES undo", `ERR OPTION : the nodes cannot be changed now: no node has begun a change of this host's list`)
	w.Say("NODES forget", `ERR OPTION : NODES forget: wanted commit, undo or nothing`)
	log.Await(t, "verb=commit error=")
}
