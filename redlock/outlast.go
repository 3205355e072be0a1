package redlock

import (
	"context"
	"time"
)

// Outlast makes leases stay taken on the nodes until an instant each (BootTime), even if this
// process ends: for at most MaxTTL from now on. The ttl of later extensions stays the same, and does
// not shorten this one. It sends all extensions first. Then it waits for a quorum for each lease, for
// at most the node timeout (twice that if the nodes' epochs have just changed), or until ctx is done. It
// returns how many leases were extended, those included that need no extension.
func (q *Quorum) Outlast(ctx context.Context, leases []*Lease, until []time.Duration) (n int) {
	_ = updated(func() (err error) { // the error only says whether to try again
		n, err = q.outlast(ctx, leases, until)
		return err
	})
	return n
}

// outlast is Outlast without the second try. If no quorum extended a lease, it returns why: of several
// errors, one that isOutdated.
func (q *Quorum) outlast(ctx context.Context, leases []*Lease, until []time.Duration) (n int, err error) {
	now := q.clock()
	var sent []*extension
	var batch []*Lease
	var ttls []time.Duration
	keys := 0
	flush := func() {
		if len(batch) == 0 {
			return
		}
		e := newExtension(q.keeper, batch, now)
		copy(e.ttls, ttls)
		e.send()
		sent, batch, ttls, keys = append(sent, e), nil, nil, 0
	}
	for i, l := range leases {
		switch ttl := min(until[i]-now, q.options.MaxTTL).Truncate(time.Millisecond) + time.Millisecond; {
		case l.Err() != nil:
			continue
		case l.Deadline() >= until[i]:
			n++
			continue
		default:
			if keys+l.width() > batchSize {
				flush()
			}
			batch, ttls, keys = append(batch, l), append(ttls, min(max(ttl, MinTTL), q.options.MaxTTL)), keys+l.width()
		}
	}
	flush()
	for _, e := range sent {
		select {
		case <-e.done:
		case <-ctx.Done():
		}
		for i := range e.leases {
			if e.isGranted(i) {
				n++
			} else if !isOutdated(err) {
				err = e.cause(i)
			}
		}
	}
	return n, err
}
