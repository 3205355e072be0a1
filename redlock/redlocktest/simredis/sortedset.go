package simredis

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// SortedSet is the value of a key that holds a sorted set.
type SortedSet struct {
	Scores  map[string]float64
	members []member // in the order of Redis
}

type member struct {
	score float64
	name  string
}

func (m member) compare(other member) int {
	return cmp.Or(cmp.Compare(m.score, other.score), strings.Compare(m.name, other.name))
}

// rank returns the position of a member that the set has.
func (s *SortedSet) rank(name string) int {
	i, _ := slices.BinarySearchFunc(s.members, member{s.Scores[name], name}, member.compare)
	return i
}

func (s *SortedSet) set(name string, score float64) {
	s.remove(name)
	m := member{score, name}
	i, _ := slices.BinarySearchFunc(s.members, m, member.compare)
	s.members = slices.Insert(s.members, i, m)
	s.Scores[name] = score
}

// remove reports whether the set had the member.
func (s *SortedSet) remove(name string) bool {
	if _, had := s.Scores[name]; !had {
		return false
	}
	i := s.rank(name)
	s.members = slices.Delete(s.members, i, i+1)
	delete(s.Scores, name)
	return true
}

// clone returns a copy of the set. s may be nil.
func (s *SortedSet) clone() *SortedSet {
	if s == nil {
		return nil
	}
	scores := make(map[string]float64, len(s.Scores))
	for _, m := range s.members {
		scores[m.name] = m.score
	}
	return &SortedSet{scores, slices.Clone(s.members)}
}

var noSet = &SortedSet{} // must not be changed

// sortedSet returns the set at key, or noSet.
func (c call) sortedSet(key string) (*SortedSet, error) {
	e, ok := c.Lookup(key, c.now)
	switch {
	case !ok:
		return noSet, nil
	case e.Set == nil:
		return nil, errWrongType
	}
	return e.Set, nil
}

// shrunk records that members were removed. A set without members does not exist.
func (c call) shrunk(key string, s *SortedSet, removed int) redlock.Reply {
	switch {
	case removed == 0:
	case len(s.members) == 0:
		c.drop(key)
	default:
		c.Changes++
	}
	return Number(int64(removed))
}

const (
	errNotFloat = redlock.ServerError("ERR value is not a valid float")
	errRange    = redlock.ServerError("ERR min or max is not a float")
	errLexRange = redlock.ServerError("ERR min or max not valid string range item")
)

// zadd executes ZADD key [NX|XX] [GT|LT] [CH] score member ….
func zadd(c call) redlock.Reply {
	var nx, xx, gt, lt, ch bool
	rest := c.args[1:]
options:
	for ; len(rest) > 0; rest = rest[1:] {
		switch strings.ToUpper(rest[0]) {
		case "NX":
			nx = true
		case "XX":
			xx = true
		case "GT":
			gt = true
		case "LT":
			lt = true
		case "CH":
			ch = true
		default:
			break options
		}
	}
	switch {
	case len(rest) == 0 || len(rest)%2 != 0:
		return Refuse(errSyntax)
	case nx && xx:
		return Failed("ERR XX and NX options at the same time are not compatible")
	case nx && (gt || lt) || gt && lt:
		return Failed("ERR GT, LT, and/or NX options at the same time are not compatible")
	}
	for i := 0; i < len(rest); i += 2 {
		if _, ok := parseFloat(rest[i]); !ok {
			return Refuse(errNotFloat)
		}
	}
	key := c.args[0]
	s, err := c.sortedSet(key)
	if err != nil {
		return Refuse(err)
	}
	if s == noSet {
		if xx {
			return Number(0)
		}
		s = &SortedSet{Scores: map[string]float64{}}
		c.Keys[key] = entry{Set: s}
	}
	added, changed := 0, 0
	for ; len(rest) > 0; rest = rest[2:] {
		score, _ := parseFloat(rest[0])
		before, had := s.Scores[rest[1]]
		switch {
		case had && (nx || score == before || gt && score < before || lt && score > before), !had && xx:
			continue
		case had:
			changed++
		default:
			added++
		}
		s.set(rest[1], score)
	}
	if added+changed > 0 {
		c.Changes++
	}
	if ch {
		added += changed
	}
	return Number(int64(added))
}

func zrem(c call) redlock.Reply {
	s, err := c.sortedSet(c.args[0])
	if err != nil {
		return Refuse(err)
	}
	removed := 0
	for _, name := range c.args[1:] {
		if s.remove(name) {
			removed++
		}
	}
	return c.shrunk(c.args[0], s, removed)
}

func zscore(c call) redlock.Reply {
	s, err := c.sortedSet(c.args[0])
	if err != nil {
		return Refuse(err)
	}
	if score, ok := s.Scores[c.args[1]]; ok {
		return Text(formatFloat(score))
	}
	return Null()
}

func zcard(c call) redlock.Reply {
	s, err := c.sortedSet(c.args[0])
	if err != nil {
		return Refuse(err)
	}
	return Number(int64(len(s.members)))
}

func zrank(c call) redlock.Reply {
	s, err := c.sortedSet(c.args[0])
	if err != nil {
		return Refuse(err)
	}
	if _, ok := s.Scores[c.args[1]]; ok {
		return Number(int64(s.rank(c.args[1])))
	}
	return Null()
}

// zcount executes ZCOUNT key min max.
func zcount(c call) redlock.Reply {
	within, ok := parseRange(c.args[1], c.args[2])
	if !ok {
		return Refuse(errRange)
	}
	s, err := c.sortedSet(c.args[0])
	if err != nil {
		return Refuse(err)
	}
	n := int64(0)
	for _, m := range s.members {
		if within(m.score) {
			n++
		}
	}
	return Number(n)
}

// zrange executes ZRANGE key first last [BYSCORE|BYLEX] [LIMIT offset count] [WITHSCORES]. Without
// BYSCORE and BYLEX, first and last are positions.
func zrange(c call) redlock.Reply {
	by, limited, withScores := "", false, false
	offset, count := int64(0), int64(-1)
	for rest := c.args[3:]; len(rest) > 0; rest = rest[1:] {
		switch option := strings.ToUpper(rest[0]); {
		case option == "WITHSCORES":
			withScores = true
		case option == "BYSCORE" || option == "BYLEX":
			by = option
		case option == "LIMIT" && len(rest) > 2:
			var ok, also bool
			offset, ok = parseInt(rest[1])
			count, also = parseInt(rest[2])
			if !ok || !also {
				return Refuse(errNotNumber)
			}
			limited, rest = true, rest[2:]
		default:
			return Refuse(errSyntax)
		}
	}
	if limited && by == "" || withScores && by == "BYLEX" {
		return Refuse(errSyntax)
	}
	var within func(member) bool
	first, last := int64(0), int64(-1)
	switch by {
	case "BYSCORE":
		isIn, ok := parseRange(c.args[1], c.args[2])
		if !ok {
			return Refuse(errRange)
		}
		within = func(m member) bool { return isIn(m.score) }
	case "BYLEX":
		least, ok := parseLex(c.args[1])
		most, also := parseLex(c.args[2])
		if !ok || !also {
			return Refuse(errLexRange)
		}
		within = func(m member) bool { return least(m.name, 1) && most(m.name, -1) }
	default:
		var ok, also bool
		first, ok = parseInt(c.args[1])
		last, also = parseInt(c.args[2])
		if !ok || !also {
			return Refuse(errNotNumber)
		}
		within = func(member) bool { return true }
	}
	s, err := c.sortedSet(c.args[0])
	if err != nil {
		return Refuse(err)
	}
	size := int64(len(s.members))
	if first < 0 {
		first = max(first+size, 0)
	}
	if last < 0 {
		last += size
	}
	reply := List()
	for i := first; i <= min(last, size-1) && count != 0; i++ {
		m := s.members[i]
		if !within(m) {
			continue
		}
		if offset > 0 {
			offset--
			continue
		}
		count--
		reply.Array = append(reply.Array, Text(m.name))
		if withScores {
			reply.Array = append(reply.Array, Text(formatFloat(m.score)))
		}
	}
	return reply
}

// parseLex parses a limit of BYLEX. The result reports whether a name is in the range on this side of
// the limit: above it (1), or below (-1).
func parseLex(limit string) (isIn func(name string, side int) bool, ok bool) {
	switch {
	case limit == "-":
		return func(_ string, side int) bool { return side > 0 }, true
	case limit == "+":
		return func(_ string, side int) bool { return side < 0 }, true
	case strings.HasPrefix(limit, "["):
		return func(name string, side int) bool { return side*strings.Compare(name, limit[1:]) >= 0 }, true
	case strings.HasPrefix(limit, "("):
		return func(name string, side int) bool { return side*strings.Compare(name, limit[1:]) > 0 }, true
	}
	return nil, false
}

// parseRange parses the limits of a range of scores. A limit after ( is not in the range.
func parseRange(least, most string) (within func(score float64) bool, ok bool) {
	least, above := strings.CutPrefix(least, "(")
	most, below := strings.CutPrefix(most, "(")
	low, ok := parseFloat(least)
	high, also := parseFloat(most)
	return func(score float64) bool {
		return (score > low || score == low && !above) && (score < high || score == high && !below)
	}, ok && also
}

func parseFloat(text string) (number float64, ok bool) {
	number, err := strconv.ParseFloat(text, 64)
	return number, err == nil && !math.IsNaN(number)
}

// formatFloat returns a number as Redis 7 shows it: with 17 digits, so that none is lost.
func formatFloat(number float64) string {
	switch {
	case math.IsInf(number, 1):
		return "inf"
	case math.IsInf(number, -1):
		return "-inf"
	case number == math.Trunc(number) && math.Abs(number) < 1e17:
		return strconv.FormatInt(int64(number), 10)
	}
	return strconv.FormatFloat(number, 'g', 17, 64)
}
