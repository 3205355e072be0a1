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
			planted.Replace("change.go", "seen.last >= candidate.since+maxTTL {", "seen.last >= candidate.since+plantedPick(WRONG, 0, maxTTL) {"),
		), []string{"too short", "the second was not seen since", "one lost its data and was admitted again", "one of them is done meanwhile", "no evidence yet"}},
		{planted.New("evidence from a node that lost its data",
			planted.Replace("change.go", "if seen.word != word ||", "if !WRONG && seen.word != word ||"),
			planted.Replace("change.go", "otherWord == c.seen[other].word &&", "(WRONG || otherWord == c.seen[other].word) &&"),
		), []string{"one lost its data and was admitted again", "one has lost its data"}},
		{planted.New("evidence of an earlier change",
			planted.Replace("change.go", "s.Number == c.number && s.Step >= Committed", "(WRONG || s.Number == c.number) && s.Step >= Committed"),
		), []string{"a commit of the change before is over"}},
		{planted.New("stage not copied",
			planted.Replace("change.go", "func(Stage) bool { return true }", "func(Stage) bool { return !WRONG }"),
		), []string{"a b c", "a b c- d+"}},
		{planted.New("the new list of an earlier change shows that this one is done",
			planted.Replace("change.go", "return c.isDone(stage) && stage.reached() == c.number+1", "return WRONG && stage.serves(c.new) || c.isDone(stage) && stage.reached() == c.number+1"),
		), []string{"it was"}},
		{planted.New("a node that is behind takes the list of any other",
			planted.Replace("change.go", "return s.serves(c.old) && c.numberOf(s) == c.number", "return s.serves(c.old) && (WRONG || c.numberOf(s) == c.number)"),
		), []string{"the other is behind"}},
		{planted.New("number of one node",
			planted.Replace("change.go", "if most != 0 && c.before.Has(node) && n <= most+1", "if WRONG || most != 0 && c.before.Has(node) && n <= most+1"),
		), []string{"not before a majority was seen", "too few were seen", "one of three", "one is restored from others", "one is in a change of others", "and back on one node", "one new node of a change", "one new node of a change is restored from others", "a change"}},
		{planted.New("commit of an earlier change",
			planted.Replace("change.go", "c.asked == c.stageLocked() &&", "(WRONG && c.asked.Number != 0 || c.asked == c.stageLocked()) &&"),
		), []string{"a commit of the change before is over"}},
		{planted.New("commit of a change that was undone",
			planted.Replace("change.go", "now < c.askedBy ||", "(WRONG || now < c.askedBy) ||"),
		), []string{"after it was asked for at 9s"}},
		{planted.New("a change begins again when the nodes were changed back",
			planted.Replace("change.go", "c.joined < c.number }", "!WRONG && c.joined < c.number }"),
		), []string{"nor when the nodes were changed back"}},
		{planted.New("a refusal is forgotten",
			planted.Replace("change.go", "c.replaced >= c.number\n", "!WRONG && c.replaced >= c.number\n"),
		), []string{"a commit", "a change to it", "and back on one node"}},
	}
	var all []planted.Mistake
	for _, m := range mistakes {
		all = append(all, m.Mistake)
	}
	binary := planted.Build(t, all)
	for _, m := range mistakes {
		out, err := planted.Command(t, binary, m.Name, "-test.run=^(TestEvidence|TestNextStage|TestComplete|TestNodeBehind|TestStageOfAdmitted|TestNumberOfList|TestUndoneChangeIsNotCommitted|TestListIsReplaced)$").CombinedOutput()
		var found []string
		for _, line := range regexp.MustCompile(`_test.go:\d+: ([^:,]*)[:,]`).FindAllSubmatch(out, -1) {
			found = append(found, string(line[1]))
		}
		if slices.Sort(found); err == nil || !slices.Equal(slices.Compact(found), slices.Sorted(slices.Values(m.found))) {
			t.Errorf("%s: found by %q, want %q: %v\n%s", m.Name, found, m.found, err, out)
		}
	}
}
