package attempts

import (
	"sync"
	"time"
)

// Slots has the semaphore slots that this process holds or requests, so that no two of its
// attempts request the same one. Slots are numbered from 1 on.
type Slots struct {
	mu    sync.Mutex // guards taken; no other mutex is taken inside it
	taken map[string]map[int32]bool
}

// Reserve chooses one of the slots of a key. It prefers the given slot (0: none), if that is free
// here. Otherwise it chooses a free slot at random, or any slot at random if none is free.
func (s *Slots) Reserve(key string, preferred int32, slots int, jitter func(string, time.Duration) time.Duration) (slot int32) {
	start := int(jitter(key, time.Duration(slots)))
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.reservedLocked(key)
	slot = preferred
	for i := 0; (slot == 0 || taken[slot]) && i < slots; i++ {
		slot = int32((start+i)%slots + 1)
	}
	taken[slot] = true
	return slot
}

// Hold reserves exactly this slot, for a lease that was granted earlier. Slot 0 means none.
func (s *Slots) Hold(key string, slot int32) {
	if slot == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reservedLocked(key)[slot] = true
}

// reservedLocked returns the reservations of one key. The caller holds mu.
func (s *Slots) reservedLocked(key string) map[int32]bool {
	if s.taken == nil {
		s.taken = map[string]map[int32]bool{}
	}
	if s.taken[key] == nil {
		s.taken[key] = map[int32]bool{}
	}
	return s.taken[key]
}

// Free ends the reservation of a slot. Slot 0 means none.
func (s *Slots) Free(key string, slot int32) {
	if slot == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken[key], slot)
	if len(s.taken[key]) == 0 {
		delete(s.taken, key)
	}
}
