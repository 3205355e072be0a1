package redlock

import (
	"time"

	"github.com/redlockd/redlockd/redlock/internal/node"
)

// hooks let tests repeat a simulation, or act at an instant of a protocol step. Safety does not depend
// on them.
type hooks struct {
	node.Hooks

	// exchangeAfter is how long after a pass the nodes get a token that names the client.
	exchangeAfter time.Duration

	// won is called before each check whether an attempt was won in time.
	won func()

	// confirmed is called when a quorum has extended a lease, before the lease has its new deadline.
	confirmed func()

	// confirming is called before the confirmation of a passed lease is sent.
	confirming func()
}

var noHooks = hooks{Hooks: node.NoHooks, exchangeAfter: exchangeAfter, won: func() {}, confirmed: func() {}, confirming: func() {}}
