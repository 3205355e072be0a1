package admission

import (
	"regexp"
	"slices"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest/planted"
)

// The tests of a change of the nodes find mistakes that take something for evidence that is none.
func TestFindMistakes(t *testing.T) {
	mistakes := []struct {
		planted.Mistake
		found []string // what the tests say
	}{
		{planted.New("new without the wait",
			planted.Replace("change.go", "seen.last >= candidate.first+maxTTL {", "seen.last >= candidate.first+plantedPick(WRONG, 0, maxTTL) {"),
		), []string{"too short", "the second was not seen since", "not seen for longer than max_ttl", "one lost its data and was admitted again", "no evidence yet"}},
		{planted.New("evidence from a node that lost its data",
			planted.Replace("change.go", "if isRecent && word == seen.word &&", "if isRecent && (WRONG || word == seen.word) &&"),
			planted.Replace("change.go", "otherWord == c.seen[other].word &&", "(WRONG || otherWord == c.seen[other].word) &&"),
		), []string{"one lost its data and was admitted again", "one has lost its data"}},
		{planted.New("evidence from before the host was stopped",
			planted.Replace("change.go", "return at <= s.last+max", "return WRONG || at <= s.last+max"),
		), []string{"not seen for longer than max_ttl", "from before the host was stopped"}},
		{planted.New("stage not copied",
			planted.Replace("change.go", "	for node := range c.seen {\n\t\t_, s", "\tif WRONG {\n\t\treturn latest\n\t}\n\tfor node := range c.seen {\n\t\t_, s"),
		), []string{"a b c", "a b c- d+"}},
		{planted.New("one node shows that a change is done",
			planted.Replace("change.go", "c.majority.Blocks(sources.serving(c.old))\n\t}\n\tevidence", "(WRONG && sources.serving(c.old) != 0 || c.majority.Blocks(sources.serving(c.old)))\n\t}\n\tevidence"),
		), []string{"a node that missed the end", "a node of four that missed the end"}},
		{planted.New("one node shows that a change is done to a node that lost its data",
			planted.Replace("change.go", "if c.newMajor.Blocks(done) {", "if WRONG && done != 0 || c.newMajor.Blocks(done) {"),
		), []string{"a b c- d+"}},
	}
	var all []planted.Mistake
	for _, m := range mistakes {
		all = append(all, m.Mistake)
	}
	binary := planted.Build(t, all)
	for _, m := range mistakes {
		out, err := planted.Command(t, binary, m.Name, "-test.run=^(TestEvidence|TestComplete|TestStageOfAdmitted)$").CombinedOutput()
		var found []string
		for _, line := range regexp.MustCompile(`_test.go:\d+: ([^:,]*)[:,]`).FindAllSubmatch(out, -1) {
			found = append(found, string(line[1]))
		}
		if slices.Sort(found); err == nil || !slices.Equal(slices.Compact(found), slices.Sorted(slices.Values(m.found))) {
			t.Errorf("%s: found by %q, want %q: %v\n%s", m.Name, found, m.found, err, out)
		}
	}
}
