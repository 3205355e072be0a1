package main

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// A network gives each daemon a network namespace with one link to the namespace of this process,
// in which the nodes are.
type network struct {
	count int
	mu    sync.Mutex // one nft command at a time
}

// newNetwork needs its own network and mount namespaces.
func newNetwork(daemons int) (*network, error) {
	n := &network{count: daemons}
	// Names of namespaces are files: in this mount namespace only this run sees them.
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	if err := run("ip", "link", "set", "lo", "up"); err != nil {
		return nil, err
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, "size=1M"); err != nil {
		return nil, fmt.Errorf("mount /run: %w", err)
	}
	for i := range daemons {
		inner, outer := n.name(i), n.link(i)
		for _, command := range [][]string{
			{"ip", "netns", "add", inner},
			{"ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", inner},
			{"ip", "addr", "add", n.nodesOf(i) + "/24", "dev", outer},
			{"ip", "link", "set", outer, "up"},
			{"ip", "-n", inner, "addr", "add", fmt.Sprintf("10.99.%d.2/24", i), "dev", "eth0"},
			{"ip", "-n", inner, "link", "set", "eth0", "up"},
			{"ip", "-n", inner, "link", "set", "lo", "up"},
		} {
			if err := run(command...); err != nil {
				return n, err
			}
		}
	}
	return n, errors.Join(
		run("nft", "add", "table", "inet", "nemesis"),
		run("nft", "add", "chain", "inet", "nemesis", "input", "{ type filter hook input priority 0; }"),
		run("nft", "add", "chain", "inet", "nemesis", "output", "{ type filter hook output priority 0; }"))
}

func (*network) name(daemon int) string    { return fmt.Sprintf("nemesis%d", daemon) }
func (*network) link(daemon int) string    { return fmt.Sprintf("nemesis%d", daemon) }
func (*network) nodesOf(daemon int) string { return fmt.Sprintf("10.99.%d.1", daemon) }

// inside returns the command that runs another one in a daemon's namespace.
func (n *network) inside(daemon int, command []string) []string {
	return append([]string{"ip", "netns", "exec", n.name(daemon)}, command...)
}

// close removes the namespaces. The rules end with the namespace of this process.
func (n *network) close() {
	for i := range n.count {
		_ = run("ip", "netns", "del", n.name(i))
	}
}

// A direction selects the packets between a daemon and a node that are dropped.
type direction int

const (
	requests direction = 1 << iota
	replies
)

// cut drops packets between a daemon and a node. heal ends that and returns their number.
func (n *network) cut(daemon, port int, d direction) (heal func() (int, error), err error) {
	type rule struct{ chain, handle string }
	var rules []rule
	remove := func() (int, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		dropped := 0
		for _, r := range rules {
			count, err := n.dropped(r.chain, r.handle)
			if err != nil {
				return dropped, err
			}
			dropped += count
			if err := run("nft", "delete", "rule", "inet", "nemesis", r.chain, "handle", r.handle); err != nil {
				return dropped, err
			}
		}
		return dropped, nil
	}
	add := func(chain, link, which string) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		text, err := commandOutput("nft", "-e", "-a", "add", "rule", "inet", "nemesis", chain, link, n.link(daemon), "tcp", which, strconv.Itoa(port), "counter", "drop")
		if err != nil {
			return err
		}
		found := handlePattern.FindStringSubmatch(text)
		if found == nil {
			return fmt.Errorf("nft did not name the handle of a new rule: %q", text)
		}
		rules = append(rules, rule{chain, found[1]})
		return nil
	}
	if d&requests != 0 {
		err = add("input", "iifname", "dport")
	}
	if err == nil && d&replies != 0 {
		err = add("output", "oifname", "sport")
	}
	if err != nil {
		_, _ = remove()
	}
	return remove, err
}

var (
	handlePattern  = regexp.MustCompile(`# handle (\d+)`)
	packetsPattern = regexp.MustCompile(`packets (\d+) `)
)

// dropped returns how many packets a rule has dropped. The caller holds mu.
func (n *network) dropped(chain, handle string) (int, error) {
	text, err := commandOutput("nft", "-a", "list", "chain", "inet", "nemesis", chain)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if found := handlePattern.FindStringSubmatch(line); found != nil && found[1] == handle {
			if packets := packetsPattern.FindStringSubmatch(line); packets != nil {
				return strconv.Atoi(packets[1])
			}
		}
	}
	return 0, fmt.Errorf("nft does not list the rule with handle %s", handle)
}

func run(command ...string) error {
	_, err := commandOutput(command...)
	return err
}

func commandOutput(command ...string) (string, error) {
	text, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(string(text)))
	}
	return string(text), nil
}
