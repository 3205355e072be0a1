package redlock

import (
	"sync"
	"time"
)

// slotReservations has the semaphore slots that this Quorum holds or requests: no two of
// its attempts request the same one.
type slotReservations struct {
	mu    sync.Mutex // guards taken; no other mutex is taken inside it
	taken map[string]map[int32]bool
}

// reserve chooses a slot. It prefers the target's present slot, if that is free here.
// Otherwise it chooses a free slot at random, or any slot at random if none is free.
func (p *slotReservations) reserve(t *target, slots int, jitter func(string, time.Duration) time.Duration) (slot int32) {
	start := int(jitter(t.key, time.Duration(slots)))
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.of(t.key)
	slot = t.slot
	for i := 0; (slot == 0 || taken[slot]) && i < slots; i++ {
		slot = int32((start+i)%slots + 1)
	}
	taken[slot] = true
	return slot
}

// hold reserves exactly the target's slot, for a lease that was granted earlier.
func (p *slotReservations) hold(t *target) {
	if t.slot == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(t.key)[t.slot] = true
}

// of returns the reservations of one key. The caller holds mu.
func (p *slotReservations) of(key string) map[int32]bool {
	if p.taken == nil {
		p.taken = map[string]map[int32]bool{}
	}
	if p.taken[key] == nil {
		p.taken[key] = map[int32]bool{}
	}
	return p.taken[key]
}

// free releases the target's slot.
func (p *slotReservations) free(t *target) {
	if t.slot == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken[t.key], t.slot)
	if len(p.taken[t.key]) == 0 {
		delete(p.taken, t.key)
	}
}
