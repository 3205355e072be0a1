package daemon

import (
	"cmp"
	"iter"
	"slices"
)

// lineup is who stands in the line for one name. One user can have thousands stand in a
// hundred lines each: nothing is to look at all of them for each of them, as everybody
// waits meanwhile. Nil: there is nobody.
type lineup struct {
	stands []stand // by their numbers, which grow; the first and the last one are somebody's
	left   int     // so many of them are nobody's any more
	firm   *place  // the first who would not share with others; nil: all would
}

// stand is a place in one of its lines.
type stand struct {
	number uint64
	place  *place // nil: it has left
}

// append puts one at the end.
func (l *lineup) append(p *place) {
	l.stands = append(l.stands, stand{p.number, p})
	if l.firm == nil && !p.kind.shared {
		l.firm = p
	}
}

// remove takes one out, if it is there.
func (l *lineup) remove(p *place) {
	i, found := slices.BinarySearchFunc(l.stands, p.number, func(s stand, number uint64) int { return cmp.Compare(s.number, number) })
	if !found || l.stands[i].place != p {
		return
	}
	l.stands[i].place = nil
	l.left++
	if l.firm == p {
		l.firm = l.firmFrom(i)
	}
	l.trim()
}

// trim lets those go who have left: those at both ends, and all where they are many, which
// costs as much as it took to become so many.
func (l *lineup) trim() {
	for len(l.stands) > 0 && l.stands[len(l.stands)-1].place == nil {
		l.stands = l.stands[:len(l.stands)-1]
		l.left--
	}
	for len(l.stands) > 0 && l.stands[0].place == nil {
		l.stands = l.stands[1:]
		l.left--
	}
	if l.left > len(l.stands)/2 {
		l.stands = slices.DeleteFunc(l.stands, func(s stand) bool { return s.place == nil })
		l.left = 0
	}
}

// firmFrom is the first from the i-th on who would not share; nil: all would.
func (l *lineup) firmFrom(i int) *place {
	for _, s := range l.stands[i:] {
		if s.place != nil && !s.place.kind.shared {
			return s.place
		}
	}
	return nil
}

// isEmpty: nobody stands there.
func (l *lineup) isEmpty() bool { return l == nil || len(l.stands) == 0 }

// all are those who stand there, the first one first.
func (l *lineup) all() iter.Seq[*place] {
	return func(yield func(*place) bool) {
		if l == nil {
			return
		}
		for _, s := range l.stands {
			if s.place != nil && !yield(s.place) {
				return
			}
		}
	}
}

// backward are they, the last one first.
func (l *lineup) backward() iter.Seq[*place] {
	return func(yield func(*place) bool) {
		if l == nil {
			return
		}
		for _, s := range slices.Backward(l.stands) {
			if s.place != nil && !yield(s.place) {
				return
			}
		}
	}
}

// next is who stands before that place, the i-th or the next one behind it, and which one
// he is; nil: nobody.
func (l *lineup) next(i int, before *place) (int, *place) {
	for l != nil && i < len(l.stands) && l.stands[i].number < before.number {
		if p := l.stands[i].place; p != nil {
			return i, p
		}
		i++
	}
	return i, nil
}

// firstTwo are the first who stand there; nil where there are not so many.
func (l *lineup) firstTwo() (first, second *place) {
	for p := range l.all() {
		if first != nil {
			return first, p
		}
		first = p
	}
	return first, nil
}
