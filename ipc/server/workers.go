package server

import "sync"

// maxIdleWorkers is how many goroutines are kept for the next Works, a few
// kilobytes each.
const maxIdleWorkers = 128

// workers run the Works of a server, each on a goroutine. Those that are done
// are kept for the next while there are connections: starting a goroutine, and
// growing its stack each time anew, costs more than much of what Works do.
type workers struct {
	mu    sync.Mutex // guards what follows
	idle  []worker   // the last used last: its stack is in the cache
	ended bool       // none is kept any more
}

// worker is where an idle goroutine waits for the next Work. It has one place:
// handing over does not block.
type worker chan job

// job is a Work that has begun, and is counted by its connection.
type job struct {
	call *Call
	work Work
}

// run has a goroutine run the job, and does not wait for it.
func (ws *workers) run(j job) {
	w := ws.take()
	if w == nil {
		w = make(worker, 1)
		go ws.serve(w) // release ends it; Conn.serve waits for the job
	}
	w <- j
}

// take is an idle worker; nil: there is none.
func (ws *workers) take() worker {
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

// serve runs jobs until there are idle workers enough, or release ends it.
func (ws *workers) serve(w worker) {
	for j := range w {
		c := j.call.conn
		c.runWork(j.call, j.work)
		kept := ws.keep(w) // before the connection can be over, and release be called
		c.wg.Done()
		if !kept {
			return
		}
	}
}

// keep makes w idle unless there are enough.
func (ws *workers) keep(w worker) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.ended || len(ws.idle) == maxIdleWorkers {
		return false
	}
	ws.idle = append(ws.idle, w)
	return true
}

// end ends all workers, as soon as their jobs do.
func (ws *workers) end() {
	ws.mu.Lock()
	ws.ended = true
	ws.mu.Unlock()
	ws.release()
}

// release ends all idle workers. It is called when no connection is left; where
// one has come since, its jobs start workers of their own.
func (ws *workers) release() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.idle {
		close(w)
	}
	ws.idle = nil
}
