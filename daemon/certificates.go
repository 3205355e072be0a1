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

// certificates warns before the next connection to a node would fail because of a certificate: the
// node's, its authority's, or the client certificate. An open connection goes on after a certificate
// has expired, maybe for months, and then one restart may lose all nodes.
type certificates struct {
	nodes    []*config.Node // nodes with TLS
	log      hclog.Logger
	checkNow chan struct{} // requests a check now

	mu     sync.Mutex // guards the fields below
	byNode map[string]certificate
}

// certificate is the result of a test connection to a node.
type certificate struct {
	expiry  time.Time // when the first certificate that the connection needs expires; zero: not known
	subject string    // which certificate that is, for a text
	fault   error     // why no connection can be made; nil: one can
}

const (
	certificateInterval   = time.Hour           // between checks
	certificateWarnPeriod = 14 * 24 * time.Hour // how long before its end a certificate causes a warning
	certificateTimeout    = 5 * time.Second     // timeout of a test connection
)

func newCertificates(cfg *config.Config, log hclog.Logger) *certificates {
	c := &certificates{log: log, checkNow: make(chan struct{}, 1), byNode: map[string]certificate{}}
	for i := range cfg.Quorum.Nodes {
		if node := &cfg.Quorum.Nodes[i]; node.TLS != nil {
			c.nodes = append(c.nodes, node)
		}
	}
	return c
}

// watch checks the certificates until ctx ends.
func (c *certificates) watch(ctx context.Context) {
	for len(c.nodes) > 0 {
		for _, node := range c.nodes {
			seen, ok := checkCertificate(ctx, node)
			if ok {
				c.note(node.Name, seen)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-c.checkNow:
		case <-time.After(certificateInterval):
		}
	}
}

// requestCheck requests a check, because certificates may have been renewed. It does not wait.
func (c *certificates) requestCheck() {
	select {
	case c.checkNow <- struct{}{}:
	default:
	}
}

func (c *certificates) note(node string, seen certificate) {
	now := time.Now()
	c.mu.Lock()
	before := c.byNode[node].warning(now)
	c.byNode[node] = seen
	c.mu.Unlock()
	if warning := seen.warning(now); warning != "" && warning != before {
		if invalid, _ := errors.AsType[x509.CertificateInvalidError](seen.fault); seen.fault != nil && invalid.Reason != x509.Expired {
			c.log.Warn("a certificate is not accepted", "node", node, "warning", warning)
		} else {
			c.log.Warn("a certificate must be renewed", "node", node, "warning", warning)
		}
	}
}

// checkCertificate makes a test connection. If ok is false, the node did not answer, so nothing is
// known about certificates.
func checkCertificate(ctx context.Context, node *config.Node) (result certificate, ok bool) {
	config, err := node.TLSClientConfig()
	if err != nil {
		return certificate{fault: err}, true
	}
	ctx, cancel := context.WithTimeout(ctx, certificateTimeout)
	defer cancel()
	state, err := nodeOptions(node).Handshake(ctx)
	if _, unfit := errors.AsType[*tls.CertificateVerificationError](err); unfit {
		return certificate{fault: err}, true
	}
	if err != nil {
		return certificate{}, false
	}
	return firstToExpire(state.VerifiedChains, config.Certificates, node.TLS.CertFile), true
}

// firstToExpire returns until when a chain from the node's certificate to an authority is valid,
// and the client certificates, which are in file.
func firstToExpire(chains [][]*x509.Certificate, clientCerts []tls.Certificate, file string) certificate {
	seen := certificate{subject: "its certificate, or one of its authority,"}
	for _, chain := range chains {
		if first := slices.MinFunc(chain, compareExpiry).NotAfter; first.After(seen.expiry) {
			seen.expiry = first
		}
	}
	for _, own := range clientCerts {
		if own.Leaf != nil && own.Leaf.NotAfter.Before(seen.expiry) {
			seen.expiry, seen.subject = own.Leaf.NotAfter, "cert_file "+file
		}
	}
	return seen
}

func compareExpiry(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }

// warning says what is wrong now or will be soon; "": nothing.
func (c certificate) warning(now time.Time) string {
	const lost = "redlockd cannot reconnect to it: "
	left, end := c.expiry.Sub(now), c.expiry.UTC().Format("2006-01-02 15:04 UTC")
	switch {
	case c.fault != nil:
		return lost + c.fault.Error()
	case c.expiry.IsZero() || left > certificateWarnPeriod:
		return ""
	case left <= 0:
		return fmt.Sprintf("%s%s was valid until %s: renew it", lost, c.subject, end)
	}
	return fmt.Sprintf("%s is valid until %s: renew it, or redlockd cannot reconnect from then on", c.subject, end)
}

// addWarnings adds the warnings about certificates to the nodes.
func (c *certificates) addWarnings(nodes []redlock.NodeStatus) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range nodes {
		node := &nodes[i]
		if warning := c.byNode[node.Name].warning(now); warning != "" && node.State != redlock.NodeDown {
			node.Warning = append(slices.Clip(node.Warning), warning)
		}
	}
}

// expiries returns, for each node, when the first certificate that its next connection needs
// expires. It has no nodes for which that is not known.
func (c *certificates) expiries() map[string]time.Time {
	ends := map[string]time.Time{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, found := range c.byNode {
		if !found.expiry.IsZero() {
			ends[name] = found.expiry
		}
	}
	return ends
}
