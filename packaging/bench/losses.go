package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// possession is a lock that is held for long and kept extended, by the daemon or
// by a keeper.
type possession interface {
	held
	// over returns why its holder may not rely on it any more, nil while he may.
	over() error
}

var errUncovered = errors.New("its holder relies on it, but too few nodes have its key")

// losses is what became of leases that should have been held.
type losses struct {
	lost int
	loss error // one of them
	bare int   // not lost, but on no more than a quorum of nodes: one more node down, and they are
}

// losses counts the leases that were lost since it was last called. A node that
// hangs cannot be asked and does not count.
func (h *holding) losses(hung *node) (l losses, err error) {
	copies, err := h.copies(hung)
	if err != nil {
		return l, err
	}
	for i := range h.taken {
		loss := h.loss(i, copies[i])
		switch {
		case h.known[i]:
		case loss != nil:
			h.known[i] = true
			l.lost++
			l.loss = fmt.Errorf("number %d: %w", i, loss)
		case copies[i] == quorum:
			l.bare++
		}
	}
	return l, nil
}

func (h *holding) loss(i, copies int) error {
	if err := h.taken[i].over(); err != nil {
		return err
	}
	if copies < quorum {
		return errUncovered
	}
	return nil
}

// copies returns on how many nodes, hung left out, each lock has its key.
func (h *holding) copies(hung *node) ([]int, error) {
	copies := make([]int, h.leases)
	for _, n := range h.fleet.nodes {
		if n == hung {
			continue
		}
		keys, err := n.keys(h.mark)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			i, err := strconv.Atoi(key[strings.LastIndexByte(key, ':')+1:])
			if err != nil {
				return nil, fmt.Errorf("%s: a key that is none of ours: %q", n.Name(), key)
			}
			copies[i]++
		}
	}
	return copies, nil
}
