package session

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// referee checks what clients rely on.
type referee struct {
	t      *testing.T
	mu     sync.Mutex // guards the fields below
	names  map[string]*judged
	asked  int // requests and grants, in their order
	grants int
}

// judged is what is known of one lock.
type judged struct {
	holds  []*searchHold
	forced int // FORCEs under way: two may hold it for a moment
	fences []fenceAt
}

type fenceAt struct {
	granted int
	fence   uint64
	shared  bool
}

// searchHold is one hold of a lock.
type searchHold struct {
	client  *searchClient
	name    string
	lease   string
	shared  bool
	fence   uint64
	until   time.Duration // its last known deadline
	isCut   bool          // the connection has ended: the client relies on the deadline
	wasLost bool
}

func (r *referee) lock(name string) *judged {
	if r.names[name] == nil {
		r.names[name] = &judged{}
	}
	return r.names[name]
}

func (r *referee) ask() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.asked
}

func (r *referee) grant(c *searchClient, q *searchRequest, answer string) *searchHold {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, asked := q.name, q.asked
	r.asked++
	r.grants++
	fence, _ := answerField(answer, "fence")
	deadline, _ := answerField(answer, "deadline")
	h := &searchHold{client: c, name: name, lease: answerWord(answer, "lease"), shared: q.shared, fence: uint64(fence), until: time.Duration(deadline) * time.Millisecond}
	of, now := r.lock(name), c.s.now()
	of.holds = slices.DeleteFunc(of.holds, func(other *searchHold) bool { return other.isCut && other.until <= now })
	for _, other := range of.holds {
		if !(other.shared && h.shared) && of.forced == 0 {
			r.t.Errorf("%v: client %d holds %s (fence %d), and client %d too (fence %d, cut %v, deadline in %v)", now, c.number, name, h.fence, other.client.number, other.fence, other.isCut, other.until-now)
		}
	}
	for _, earlier := range of.fences {
		if earlier.granted < asked && h.fence <= earlier.fence && !(earlier.shared && h.shared) {
			r.t.Errorf("client %d was granted %s with token %d, and an earlier grant had %d", c.number, name, h.fence, earlier.fence)
		}
	}
	of.holds = append(of.holds, h)
	if of.fences = append(of.fences, fenceAt{r.asked, h.fence, h.shared}); len(of.fences) > 50 {
		of.fences = of.fences[1:]
	}
	return h
}

func (r *referee) extend(h *searchHold, deadline int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.until = max(h.until, time.Duration(deadline)*time.Millisecond)
}

// end ends a hold, before its release is sent.
func (r *referee) end(h *searchHold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h != nil {
		of := r.lock(h.name)
		of.holds = slices.DeleteFunc(of.holds, func(other *searchHold) bool { return other == h })
	}
}

// cut notes that a client's connection has ended. It relies on what it holds until the deadline.
func (r *referee) cut(c *searchClient) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.names {
		for _, h := range of.holds {
			h.isCut = h.isCut || h.client == c
		}
	}
}

// resumed notes that a connection has taken over a hold, unless that was lost.
func (r *referee) resumed(h *searchHold, deadline int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.wasLost {
		return
	}
	of := r.lock(h.name)
	h.isCut, h.until = false, time.Duration(deadline)*time.Millisecond
	for _, other := range of.holds {
		if other != h && !(other.shared && h.shared) && of.forced == 0 && !(other.isCut && other.until <= h.client.s.now()) {
			r.t.Errorf("client %d resumes %s (token %d), and client %d holds it (token %d)", h.client.number, h.name, h.fence, other.client.number, other.fence)
		}
	}
	if !slices.Contains(of.holds, h) { // its deadline had passed for the client
		of.holds = append(of.holds, h)
	}
}

func (r *referee) wasLost(h *searchHold) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return h.wasLost
}

func (r *referee) lost(c *searchClient) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.names {
		of.holds = slices.DeleteFunc(of.holds, func(h *searchHold) bool {
			isThis := h.client == c && !h.isCut
			h.wasLost = h.wasLost || isThis
			return isThis
		})
	}
}

func (r *referee) force(name string, begins bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if begins {
		r.lock(name).forced++
	} else {
		r.lock(name).forced--
	}
}
