package lockname

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// LookAlikes returns a text for each group of names that look alike and are different locks: Unicode
// has two forms for many letters, é as one character (NFC) or as e and an accent (NFD).
func LookAlikes(names []string) (texts []string) {
	groups := make(map[string][]string) // by the NFC form
	for _, name := range names {
		form := norm.NFC.String(name)
		if !slices.Contains(groups[form], name) {
			groups[form] = append(groups[form], name)
		}
	}
	for _, form := range slices.Sorted(maps.Keys(groups)) {
		if group := groups[form]; len(group) > 1 {
			var quoted []string
			for _, name := range slices.Sorted(slices.Values(group)) {
				quoted = append(quoted, strconv.QuoteToASCII(name))
			}
			texts = append(texts, fmt.Sprintf("%q: %d locks have names that look alike, in different Unicode forms: %s", form, len(group), strings.Join(quoted, ", ")))
		}
	}
	return texts
}

// FixLookAlikes says what to do about such names.
const FixLookAlikes = "let all programs write the name in one form, best in NFC"
