package main

import (
	"os"
	"runtime"
)

// mostProcessors bounds the processors of the daemon. The nodes cannot keep more of them busy.
const mostProcessors = 4

// leaveProcessors limits the daemon to at most half of the processors for as long as it runs.
// The daemon shares a host with its clients. Handing each piece of work to another thread costs
// a wake-up, which takes longer than most pieces. GOMAXPROCS in the environment overrides it.
func leaveProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(processorsOf(runtime.GOMAXPROCS(0)))
	}
}

// processorsOf returns how many processors to use, of all that exist or that the cgroup allows.
func processorsOf(all int) int { return min(max(all/2, 1), mostProcessors) }
