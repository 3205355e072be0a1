package main

import (
	"context"
	"fmt"
	"time"
)

// The bounds of liveness that the nemesis checks. They are far above what redlockd needs, because
// other programs may keep the machine busy.
const (
	// lateBound is how long after the end of its wait= a request may be answered. No fault stops a
	// daemon or a client for longer than half of that.
	lateBound = 10 * time.Second
	// calmBound is how long after the last fault every client has a grant. Before it, the nodes end
	// a quarantine of maxTTL, and the leases of dead holders expire.
	calmBound = 20 * time.Second
	calmName  = "calm"
	calmLine  = "calm\n" // tells a client process that no more faults are made
)

// A calmReport is what a worker says after the last fault.
type calmReport struct {
	Worker  int           `json:"worker"`
	Granted bool          `json:"granted"`
	Waited  time.Duration `json:"waited"`
}

// calm takes one lock, which all workers want, and reports it. The last fault has ended.
func (w *worker) calm(connection locker) error {
	start := now()
	h, err := connection.lock([]string{calmName}, exclusive, calmBound, shortTTL)
	if err != nil {
		return err
	}
	w.out.printLine(clientLine{Calm: &calmReport{Worker: w.number, Granted: h != nil, Waited: now() - start}})
	w.isCalm = true
	if h == nil {
		return nil
	}
	w.out.print(h)
	h.Ended, h.Reason = now(), "released"
	w.out.print(h)
	return connection.unlock(h)
}

// awaitCalm tells all workers that the last fault has ended, and returns a violation unless each of
// them gets a lock within calmBound. Those of redsync do not want it: nobody promises them a turn.
func (w *world) awaitCalm(ctx context.Context) []violation {
	for _, c := range w.clients {
		if _, err := c.input.Write([]byte(calmLine)); err != nil {
			return []violation{{name: calmName, what: fmt.Sprintf("client process %d cannot be told that the last fault has ended: %v", c.number, err)}}
		}
	}
	want := (len(w.clients) - w.options.rivals) * w.options.workers
	end := time.After(calmBound)
	for seen := 0; seen < want; {
		select {
		case one := <-w.calm:
			if !one.Granted {
				return []violation{{name: calmName, what: fmt.Sprintf("worker %d was refused after %v, although no fault was made any more", one.Worker, one.Waited)}}
			}
			seen++
			w.calmest = max(w.calmest, one.Waited)
		case <-end:
			return []violation{{name: calmName, what: fmt.Sprintf("%d of %d workers had no grant within %v after the last fault", want-seen, want, calmBound)}}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}
