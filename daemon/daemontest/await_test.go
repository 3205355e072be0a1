package daemontest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Await returns as soon as a line is written, and at once if it was written before.
func TestLogAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log Log
		begin := time.Now()
		go func() {
			for i := range 3 {
				time.Sleep(time.Second)
				fmt.Fprintf(&log, "line %d\n", i)
			}
		}()
		log.Await(t, "line 2\n")
		log.Await(t, "line 0\n")
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("Await returned after %v, want 3s", took)
		}
	})
}
