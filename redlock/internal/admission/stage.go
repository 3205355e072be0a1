package admission

import (
	"fmt"
	"strconv"
	"strings"
)

// Stage says which lists of nodes a node serves. An admitted epoch has it as its digest:
//
//	NUMBER>LIST            the node grants locks to hosts whose config has this list
//	NUMBER>OLD>NEW>STEP    the nodes are being changed from one list to another
//
// A host is old (its config has the old list), joint (both lists: it takes a lock on a majority of
// each) or new. An old and a new host may share no node. So no node serves a new host before a
// majority of the old list has refused old hosts for as long as any of their locks can last.
//
// The first list of a fleet has the number 1, and each change leads to the next number. A config does not
// have it: the nodes show it. So a stage of an earlier change never comes again, although the same lists can.
type Stage struct {
	Number uint64 // of the old list, or of the only one; 0: not known
	Old    string // digest of the old list, or of the only one
	New    string // of the new list; "": the nodes are not being changed
	Step   Step
}

// Step is how far a change of the nodes is, on one node.
type Step uint8

// The steps of a change.
const (
	Settled   Step = iota // none: the node serves one list
	Begun                 // it serves old and joint hosts
	Committed             // it serves joint hosts
	Done                  // it serves joint and new hosts
)

var stepWords = [...]string{Settled: "", Begun: "begun", Committed: "committed", Done: "done"}

func (s Step) String() string { return stepWords[s] }

// stageMark separates the parts of a Stage.
const stageMark = ">"

func (s Stage) String() string {
	parts := []string{strconv.FormatUint(s.Number, 10), s.Old}
	if s.Step != Settled {
		parts = append(parts, s.New, s.Step.String())
	}
	return strings.Join(parts, stageMark)
}

// parseStage parses a text that String returned.
func parseStage(text string) (s Stage, err error) {
	parts := strings.Split(text, stageMark)
	if s.Number, err = strconv.ParseUint(parts[0], 10, 32); err == nil && len(parts) >= 2 {
		s.Old = parts[1]
		for step := Begun; len(parts) == 4 && step <= Done; step++ {
			if parts[3] == step.String() {
				s.New, s.Step = parts[2], step
			}
		}
	}
	if s.String() != text || s.Number == 0 {
		return Stage{}, fmt.Errorf("its hash %s has a list of nodes, or a stage of their change, without a number that redlockd wrote (%.80q): "+
			"use the same version everywhere; if another program wrote it: FLUSHALL on this node alone, then it waits max_ttl like a new node", NodeKey, text)
	}
	return s, nil
}

// serves reports whether the node grants locks to hosts whose config has this list alone.
func (s Stage) serves(list string) bool {
	switch s.Step {
	case Settled, Begun:
		return s.Old == list
	case Done:
		return s.New == list
	}
	return false
}

// isOf reports whether the nodes are being changed from one list to the other.
func (s Stage) isOf(before, after string) bool {
	return s.Step != Settled && s.Old == before && s.New == after
}

// reached returns the number of the list that a node serves; of a committed change, the number of the
// old one.
func (s Stage) reached() uint64 {
	if s.Step == Done {
		return s.Number + 1
	}
	return s.Number
}

// isBefore reports whether a node with this stage has missed steps that a node with the other one has
// made. Stages of two changes of one list are not ordered.
func (s Stage) isBefore(other Stage) bool {
	return s.Number < other.Number || s.Number == other.Number && s.Step < other.Step
}
