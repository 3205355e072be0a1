package server

import "sync"

// maxIdleWorkers is how many idle goroutines a pool keeps. Each costs a few kilobytes.
const maxIdleWorkers = 128

// workers runs jobs, each on a goroutine, and keeps some of the goroutines for later jobs.
//
// A go statement for each job would be simpler. But a new goroutine starts with a small stack, and
// copies it when the job needs more. Measured with 64 jobs that need 6 KiB of stack, medians of 15
// runs: 162 µs of processor time with the pool, 345 µs with go statements. For a LOCK and its UNLOCK
// (BenchmarkPair of package daemon, 64 workers on one connection, eight runs each): 93 and 105 µs.
type workers[J workerJob] struct {
	// mu guards the fields below. No other mutex is taken inside it.
	mu    sync.Mutex
	idle  []chan J // each has room for one job; the last used is at the end, because its stack is in the cache
	ended bool     // no goroutine is kept any more

	running sync.WaitGroup // the goroutines; wait waits for them
}

// workerJob is what a pool runs.
type workerJob interface {
	run()
	// done is called after run, and after the goroutine has been offered to the pool again. The
	// job's owner may call release only after done.
	done()
}

// run runs the job on a goroutine and does not wait for it. The job's owner waits until done is
// called; release ends the goroutine.
func (ws *workers[J]) run(j J) {
	w := ws.takeIdle()
	if w == nil {
		w = make(chan J, 1)
		ws.running.Go(func() { ws.serve(w) })
	}
	w <- j
}

// takeIdle returns an idle worker, or nil if there is none.
func (ws *workers[J]) takeIdle() chan J {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	last := len(ws.idle) - 1
	if last < 0 {
		return nil
	}
	w := ws.idle[last]
	ws.idle = ws.idle[:last]
	return w
}

// serve runs jobs until the pool has enough other idle workers, or release closes w.
func (ws *workers[J]) serve(w chan J) {
	for j := range w {
		j.run()
		kept := ws.makeIdle(w)
		j.done()
		if !kept {
			return
		}
	}
}

// makeIdle makes w idle unless the pool has enough idle workers.
func (ws *workers[J]) makeIdle(w chan J) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.ended || len(ws.idle) == maxIdleWorkers {
		return false
	}
	ws.idle = append(ws.idle, w)
	return true
}

// end ends all workers as soon as their jobs end.
func (ws *workers[J]) end() {
	ws.mu.Lock()
	ws.ended = true
	ws.mu.Unlock()
	ws.release()
}

// wait ends all idle workers, and waits for all workers. All jobs must have ended, and no further
// job may be run.
func (ws *workers[J]) wait() {
	ws.end()
	ws.running.Wait()
}

// release ends all idle workers. The server calls it when the last connection has ended. Jobs of a
// newer connection start new workers.
func (ws *workers[J]) release() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.idle {
		close(w)
	}
	ws.idle = nil
}
