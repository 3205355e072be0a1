package statefile

// The next file is made while the last one has some room left: whoever appends does
// not wait until there is memory for it.

// lookAhead has it made, once, in the background. It needs mu.
func (t *Table) lookAhead() {
	if t.tried || t.ending || t.last.used < len(t.last.memory)/4*3 {
		return
	}
	t.tried = true
	if t.making || t.spare.fits(t.size) {
		return
	}
	t.making = true
	number, size := t.number+1, t.size
	t.compacting.Go(func() {
		s, _ := newSegment(t.file(number)+aheadSuffix, size) // if not, it is tried again when it is needed, and told then
		t.ahead(s)
	})
}

// aheadSuffix tells its file from one that is made for a number at once.
const aheadSuffix = ".next"

// ahead takes a file that was made; nil: it could not be.
func (t *Table) ahead(s *segment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.making = false
	t.takeSpare().discard() // too small
	if t.last == nil {
		s.discard()
		return
	}
	t.spare = s
}

// takeSpare needs mu.
func (t *Table) takeSpare() *segment {
	spare := t.spare
	t.spare = nil
	return spare
}
