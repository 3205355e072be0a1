package main

import (
	"runtime"
	"sync"
)

// spareThreads is more than redlock run was ever seen to need at once.
const spareThreads = 12

// reserveThreads has so many threads be there, which Go keeps and uses before it asks the
// kernel for another. Where the command uses up what processes and threads its user or its
// control group may have, there is none to be had, and Go ends a process that needs one:
// redlock run would, in the moment in which it is to stop the command.
func reserveThreads(n int) {
	var reserved, over sync.WaitGroup
	reserved.Add(n)
	for range n {
		over.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // or the thread would end
			reserved.Done()
			reserved.Wait() // each has one of its own by then
		})
	}
	over.Wait()
}
