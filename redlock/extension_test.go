package redlock

import (
	"errors"
	"slices"
	"testing"
)

// For a lease of several keys, the worst answer counts, wherever it is in the list. An error is
// no vote, whatever the other answers are. Guards compareReplies.
func TestWorstAnswerCounts(t *testing.T) {
	broken := Reply{Err: errors.New("OOM")}
	for _, c := range []struct {
		replies []Reply
		want    Reply
	}{
		{[]Reply{{Int: 1}, broken, {Int: 0}}, broken},
		{[]Reply{broken, {Int: -1}}, broken},
		{[]Reply{{Int: 0}, {Int: -1}, {Int: 1}}, Reply{Int: -1}},
		{[]Reply{{Int: 1}, {Int: 0}}, Reply{Int: 0}},
	} {
		if got := slices.MinFunc(c.replies, compareReplies); got.Err != c.want.Err || got.Int != c.want.Int {
			t.Errorf("the worst of %+v: got %+v, want %+v", c.replies, got, c.want)
		}
	}
}
