package daemon

import "slices"

// VerbHelp is what HELP says of a verb.
type VerbHelp struct {
	Usage string
	Does  []string // a line each
}

// Help is what HELP says of all verbs, in the order of the protocol: for the manual.
func Help() (verbs []VerbHelp) {
	for _, line := range helpLines {
		verbs = append(verbs, VerbHelp{Usage: line.usage, Does: slices.Clone(line.does)})
	}
	return verbs
}
