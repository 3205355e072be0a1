package job

import (
	"runtime"
	"sync"
)

// reservedThreads exceeds the number of threads that redlock run was ever seen to need at once.
const reservedThreads = 12

// reserveThreads makes the Go runtime start n threads, which it keeps and reuses. If the command
// uses up the threads that its user or control group may have, the kernel refuses a new one, and
// the Go runtime then ends the process. redlock run would end just when it must stop the command.
func reserveThreads(n int) {
	var reserved, over sync.WaitGroup
	reserved.Add(n)
	for range n {
		over.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // otherwise the thread ends
			reserved.Done()
			reserved.Wait() // waits until each goroutine has a thread of its own
		})
	}
	over.Wait()
}
