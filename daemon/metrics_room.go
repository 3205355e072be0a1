package daemon

import (
	"net"
	"slices"
	"sync"
)

// scrapers are how many may be connected for metrics: some Prometheus servers, and who
// looks by hand.
const scrapers = 32

// scrapersRoom listens for metrics. Any user of the host can connect there, and whoever
// reaches the address, and each connection takes a descriptor that clients and nodes would
// need: so of more than scrapers the one that came first is closed. (Were a new one to wait,
// or refused, those who came before would keep Prometheus out.)
type scrapersRoom struct {
	net.Listener

	mu   sync.Mutex
	here []*scraper // who came first is first
}

func (r *scrapersRoom) Accept() (net.Conn, error) {
	conn, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s := &scraper{Conn: conn, room: r}
	if first := r.add(s); first != nil {
		first.Close() // an error has nothing to do with who still reads
	}
	return s, nil
}

// add returns who has to make room; nil: nobody.
func (r *scrapersRoom) add(s *scraper) (first *scraper) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.here = append(r.here, s)
	if len(r.here) > scrapers {
		first = r.here[0]
	}
	return first
}

func (r *scrapersRoom) remove(s *scraper) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.here, s); i >= 0 {
		r.here = slices.Delete(r.here, i, i+1)
	}
}

// scraper is somebody in there. It may be closed more than once.
type scraper struct {
	net.Conn
	room *scrapersRoom
}

func (s *scraper) Close() error {
	s.room.remove(s)
	return s.Conn.Close()
}
