package main

import (
	"os"
	"runtime"
)

// mostProcessors are more than the nodes can keep busy.
const mostProcessors = 4

// leaveProcessors has Go run the daemon on no more than half of the processors, for as
// long as it runs: it shares a host with its clients, and to have another
// thread go on with each piece of work costs a wake-up, which takes longer than most of
// them. GOMAXPROCS in the environment says otherwise.
func leaveProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(processorsOf(runtime.GOMAXPROCS(0)))
	}
}

// processorsOf is how many to use of so many that there are, or that its cgroup allows.
func processorsOf(all int) int { return min(max(all/2, 1), mostProcessors) }
