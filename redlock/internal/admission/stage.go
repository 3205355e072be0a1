package admission

import (
	"fmt"
	"strings"
)

// Stage says which lists of nodes a node serves. An admitted epoch has it as its digest:
//
//	LIST            the node grants locks to hosts whose config has this list
//	OLD>NEW>STEP    the nodes are being changed from one list to another
//
// A host is old (its config has the old list), joint (both lists: it takes a lock on a majority of
// each) or new. An old and a new host may share no node. So no node serves a new host before a
// majority of the old list has refused old hosts for as long as any of their locks can last.
type Stage struct {
	Old  string // digest of the old list, or of the only one
	New  string // of the new list; "": the nodes are not being changed
	Step Step
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
	if s.Step == Settled {
		return s.Old
	}
	return strings.Join([]string{s.Old, s.New, s.Step.String()}, stageMark)
}

// parseStage parses a text that String returned.
func parseStage(text string) (Stage, error) {
	parts := strings.Split(text, stageMark)
	if len(parts) == 1 {
		return Stage{Old: text}, nil
	}
	if len(parts) == 3 {
		for step := Begun; step <= Done; step++ {
			if parts[2] == step.String() {
				return Stage{Old: parts[0], New: parts[1], Step: step}, nil
			}
		}
	}
	return Stage{}, fmt.Errorf("its hash %s has a stage of a change of the nodes that this version of redlockd does not know (%.80q): use the same version everywhere", NodeKey, text)
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
