package node

import (
	"math/rand/v2"
	"runtime"
	"time"
)

// Hooks let tests repeat a simulation. Safety does not depend on them.
type Hooks struct {
	// Jitter returns a random time in [0, n), n > 0, for a node or a lock.
	Jitter func(who string, n time.Duration) time.Duration

	// GroupsUnderWay returns how many groups may be in progress, given the number that the round
	// trips suggest.
	GroupsUnderWay func(measured int) int

	// Gather lets goroutines that are about to pass a call to the lane join the group.
	Gather func()
}

// NoHooks is what a lane has outside of tests.
var NoHooks = Hooks{
	Jitter:         func(_ string, n time.Duration) time.Duration { return rand.N(n) },
	GroupsUnderWay: func(measured int) int { return measured },
	Gather:         runtime.Gosched,
}
