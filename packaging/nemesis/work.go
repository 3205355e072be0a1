package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// A store has a counter for each lock, twice. Holders increment both by reading, working and
// writing. The store compares fencing tokens for one of them only.
type store struct{ db *redis.Client }

// readScript returns both counters. The fenced one learns the holder's token: otherwise an earlier
// holder could write between this read and the write that follows it. ARGV: token.
var readScript = redis.NewScript(`
local now = redis.call('HMGET', KEYS[1], 'plain', 'fenced', 'token')
if tonumber(ARGV[1]) < tonumber(now[3] or 0) then
	return {now[1] or '0', ''}
end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
return {now[1] or '0', now[2] or '0'}`)

// writeScript writes both counters, and counts the writes. ARGV: token, plain, fenced or ”.
var writeScript = redis.NewScript(`
redis.call('HSET', KEYS[1], 'plain', ARGV[2])
redis.call('HINCRBY', KEYS[1], 'plain_writes', 1)
if ARGV[3] ~= '' and tonumber(ARGV[1]) >= tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then
	redis.call('HSET', KEYS[1], 'fenced', ARGV[3])
	redis.call('HINCRBY', KEYS[1], 'fenced_writes', 1)
else
	redis.call('HINCRBY', KEYS[1], 'refused', 1)
end`)

// A work is what a holder has read.
type work struct {
	name          string
	token         uint64
	plain, fenced string // fenced is empty if the read was refused
}

func newStore(address string) *store { return &store{redis.NewClient(&redis.Options{Addr: address})} }

// begin reads the counters of the lock.
func (s *store) begin(h *hold) (*work, error) {
	got, err := readScript.Run(context.Background(), s.db, []string{h.Names[0]}, h.Fence).StringSlice()
	if err != nil {
		return nil, err
	}
	if len(got) != 2 {
		return nil, fmt.Errorf("the store answered %q to a read", got)
	}
	return &work{h.Names[0], h.Fence, got[0], got[1]}, nil
}

// end writes the counters, incremented.
func (s *store) end(w *work) error {
	plain, err := incremented(w.plain)
	if err != nil {
		return err
	}
	fenced, err := incremented(w.fenced)
	if err != nil {
		return err
	}
	err = writeScript.Run(context.Background(), s.db, []string{w.name}, w.token, plain, fenced).Err()
	if err == redis.Nil {
		return nil
	}
	return err
}

// incremented adds 1 to a number. An empty text stays empty.
func incremented(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return strconv.FormatInt(n+1, 10), err
}

// A workCount is how much work was done, and lost: a counter that is smaller than the number of its
// writes has lost the difference.
type workCount struct {
	writes, lost, fencedWrites, fencedLost, refused int64
}

// count reads the whole store.
func (s *store) count(ctx context.Context) (sum workCount, err error) {
	keys := s.db.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		got, err := s.db.HGetAll(ctx, keys.Val()).Result()
		if err != nil {
			return sum, err
		}
		number := func(field string) int64 {
			n, _ := strconv.ParseInt(got[field], 10, 64) // 0 if it was never written
			return n
		}
		sum.writes += number("plain_writes")
		sum.lost += number("plain_writes") - number("plain")
		sum.fencedWrites += number("fenced_writes")
		sum.fencedLost += number("fenced_writes") - number("fenced")
		sum.refused += number("refused")
	}
	return sum, keys.Err()
}

// violations returns one if fenced work was lost.
func (c workCount) violations() []violation {
	if c.fencedLost == 0 {
		return nil
	}
	return []violation{{name: "store", what: fmt.Sprintf("%d of %d updates were lost, although the store compares fencing tokens", c.fencedLost, c.fencedWrites)}}
}
