package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/redlock"
)

// certificates tells before the next connection to a node would fail for a certificate:
// what the node shows, what signed that, or our own. The connection that is there goes on
// without any, for months, and then all nodes may be lost with one restart.
type certificates struct {
	nodes []*config.Node // those with TLS
	log   hclog.Logger
	again chan struct{} // look now

	mu    sync.Mutex // guards what follows
	found map[string]certificate
}

// certificate is what a new connection to a node came to.
type certificate struct {
	end   time.Time // of the first one that ends of those that it needs; zero: none was seen
	whose string    // that one is
	fault error     // no connection can be made; nil: one can
}

const (
	certificateEvery = time.Hour           // are they looked at
	certificateSoon  = 14 * 24 * time.Hour // before its end a certificate is warned of
	certificateWait  = 5 * time.Second     // for a node
)

func newCertificates(cfg *config.Config, log hclog.Logger) *certificates {
	c := &certificates{log: log, again: make(chan struct{}, 1), found: map[string]certificate{}}
	for i := range cfg.Quorum.Nodes {
		if node := &cfg.Quorum.Nodes[i]; node.TLS != nil {
			c.nodes = append(c.nodes, node)
		}
	}
	return c
}

// watch looks at them until ctx ends.
func (c *certificates) watch(ctx context.Context) {
	for len(c.nodes) > 0 {
		c.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-c.again:
		case <-time.After(certificateEvery):
		}
	}
}

// lookAgain is for when somebody may have renewed them. It does not wait.
func (c *certificates) lookAgain() {
	select {
	case c.again <- struct{}{}:
	default:
	}
}

func (c *certificates) look(ctx context.Context) {
	for _, node := range c.nodes {
		seen, ok := seeCertificate(ctx, node)
		if ok {
			c.note(node.Name, seen)
		}
	}
}

func (c *certificates) note(node string, seen certificate) {
	now := time.Now()
	c.mu.Lock()
	before := c.found[node].warning(now)
	c.found[node] = seen
	c.mu.Unlock()
	if warning := seen.warning(now); warning != "" && warning != before {
		c.log.Warn("a certificate must be renewed", "node", node, "warning", warning)
	}
}

// seeCertificate makes a connection, for its certificates alone. Not ok: the node does not
// answer, which says nothing of them.
func seeCertificate(ctx context.Context, node *config.Node) (seen certificate, ok bool) {
	config, err := node.TLSClientConfig()
	if err != nil {
		return certificate{fault: err}, true
	}
	ctx, cancel := context.WithTimeout(ctx, certificateWait)
	defer cancel()
	state, err := nodeOptions(node).Handshake(ctx)
	if _, unfit := errors.AsType[*tls.CertificateVerificationError](err); unfit {
		return certificate{fault: err}, true
	}
	if err != nil {
		return certificate{}, false
	}
	return firstToEnd(state.VerifiedChains, config.Certificates, node.TLS.CertFile), true
}

// firstToEnd is until when there is a chain from the node's certificate to an authority, and
// ours, of this file, is good.
func firstToEnd(chains [][]*x509.Certificate, ours []tls.Certificate, file string) certificate {
	seen := certificate{whose: "its certificate, or that of who signed it,"}
	for _, chain := range chains {
		if first := slices.MinFunc(chain, byEnd).NotAfter; first.After(seen.end) {
			seen.end = first
		}
	}
	for _, own := range ours {
		if own.Leaf != nil && own.Leaf.NotAfter.Before(seen.end) {
			seen.end, seen.whose = own.Leaf.NotAfter, "cert_file "+file
		}
	}
	return seen
}

func byEnd(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }

// warning says what is wrong, or soon will be; "": nothing.
func (c certificate) warning(now time.Time) string {
	const lost = "its connection cannot be made anew once it ends: "
	left, end := c.end.Sub(now), c.end.UTC().Format("2006-01-02 15:04 UTC")
	switch {
	case c.fault != nil:
		return lost + c.fault.Error()
	case c.end.IsZero() || left > certificateSoon:
		return ""
	case left <= 0:
		return fmt.Sprintf("%s%s was good until %s: renew it", lost, c.whose, end)
	}
	return fmt.Sprintf("%s is good until %s: renew it, or no new connection can be made from then on", c.whose, end)
}

// warn adds the warnings about certificates to the nodes.
func (c *certificates) warn(nodes []redlock.NodeStatus) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range nodes {
		node := &nodes[i]
		if warning := c.found[node.Name].warning(now); warning != "" && node.State != redlock.NodeDown {
			node.Warning = append(slices.Clip(node.Warning), warning)
		}
	}
}

// ends is when the first certificate ends that each node's next connection needs, as far as
// it is known.
func (c *certificates) ends() map[string]time.Time {
	ends := map[string]time.Time{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, found := range c.found {
		if !found.end.IsZero() {
			ends[name] = found.end
		}
	}
	return ends
}
