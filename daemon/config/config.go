package config

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/redlock"
)

// maxFileSize bounds a config file. The largest sensible one is a hundredth of it.
const maxFileSize = 256 << 10

// readTimeout bounds how long reading a config file from a pipe may take.
const readTimeout = 10 * time.Second

// Config is everything that redlockd.hcl says, checked and with the defaults filled in.
// It holds no secrets: passwords and keys stay in their files until they are needed.
type Config struct {
	Path    string // the file it was read from; "" for Dev
	Source  []byte // the content of the file
	Quorum  Quorum
	Lease   Lease
	Drain   time.Duration // how long a stopping daemon waits for held locks; 0: not at all
	Socket  Socket
	Access  *Access // nil: everyone who can open the socket may lock anything
	Limits  Limits
	Log     Log
	Metrics *Metrics // nil: off
	Doctor  Doctor

	// Warnings name settings that are allowed but unwise, each with file:line. For the log.
	Warnings []string
}

// Quorum has the nodes, and the settings that apply to all of them.
type Quorum struct {
	KeyPrefix   string        // before every lock's name on the nodes; "" shares locks with clients that use bare names
	MaxTTL      time.Duration // the longest ttl of a lease on these nodes; also the length of a quarantine
	NodeTimeout time.Duration // a node that has not answered for this long has failed this ballot
	Nodes       []Node        // in the order of the file; at least one
}

// Needed returns how many nodes are a quorum.
func (c *Quorum) Needed() int { return len(c.Nodes)/2 + 1 }

// IsChanging reports whether nodes are joining or leaving.
func (c *Quorum) IsChanging() bool {
	return slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.Joining || n.Leaving })
}

// Node is one Redis master.
type Node struct {
	Name         string // unique, up to 32 of [A-Za-z0-9._-]
	Address      string // "host:port", "[v6]:port" or "unix:/absolute/path", unique
	Database     int    // number of the database at that address
	Username     string // "": the default user
	PasswordFile string // resolved path; "": no password is sent
	Durable      bool   // its votes survive a restart (AOF, appendfsync always)
	Joining      bool   // it is not in the old list of a change of the nodes
	Leaving      bool   // it is not in the new list
	TLS          *TLS
	Pos          string // "file:line" of the node's block; "" if no file was read
}

// TLS says how to speak TLS to a node. Its file names are resolved paths.
type TLS struct {
	CAFile     string // "": the system's roots
	CertFile   string // with KeyFile; "": no client certificate
	KeyFile    string
	ServerName string // "": the host of the node's address
}

// Lease holds the defaults of a LOCK.
type Lease struct {
	TTL     time.Duration // default of ttl=
	MaxHold time.Duration // default and ceiling of max=; 0: no bound
	Linger  time.Duration // default of linger=
}

// Socket is where clients connect.
type Socket struct {
	Path  string
	Mode  fs.FileMode // permission bits
	Group string      // name or number; "": the daemon's own group
}

// Access has the access rules. A request that no rule allows is denied.
type Access struct {
	Rules []Rule
}

// String summarizes the rules for the log.
func (c *Access) String() string {
	if c == nil {
		return "everything, to everybody who can connect"
	}
	return fmt.Sprintf("by %d rules", len(c.Rules))
}

// Rule lets some users do something with some locks.
type Rule struct {
	Name   string
	Users  []string // names or numbers
	Groups []string
	Locks  []string // patterns: * matches any run of characters without /, and ** any run
	Allow  []string // of "lock", "inspect", "admin"

	UIDs, GIDs []int // the ids of Users and Groups when the config was read
}

// The rights that an access rule can allow. No right includes another one.
const (
	RightLock    = "lock"    // LOCK and TRY
	RightInspect = "inspect" // WHO, and the locks that LIST shows and STATUS counts
	RightAdmin   = "admin"   // FORCE; with locks = ["**"] also ADMIT and NODES
)

// AllRights lists the values of allow.
var AllRights = []string{RightLock, RightInspect, RightAdmin}

// Limits bounds what clients can use. 0 is no bound.
type Limits struct {
	Connections        int // open at once
	ConnectionsPerUser int
	LeasesPerUser      int
	WaitersPerUser     int
	RequestsPerSecond  int // of one connection
}

// Doctor says what redlock doctor does on this host.
type Doctor struct {
	Ignore []string // checks whose warnings the operator accepts
}

// DoctorChecks are the checks of redlock doctor.
var DoctorChecks = []string{
	"socket", "daemon", "version", "table", "quorum", "node-change", "node-count", "node", "persistence", "same-host", "latency", "wake-ups",
	"max-ttl", "lease-time", "clock-jumps", "withdrawals", "fencing", "restarts", "clock", "names",
}

// Log has the settings of the log.
type Log struct {
	Level  hclog.Level
	Format logging.Format
	Grants bool // also log each grant and release
}

// Metrics is where Prometheus scrapes.
type Metrics struct {
	Address string // "host:port"
	Page    bool   // the status page at /
	Names   bool   // the page shows the locks' names and holders
}

// Load reads and checks the config file at path, and the files that it names. If the file cannot
// be read, it returns the error of the operating system. If its content is wrong, it returns an
// *Error with all faults, in file order. Relative names of password and TLS files start in
// $CREDENTIALS_DIRECTORY, or in the directory of the config file if that is not set.
func Load(path string) (*Config, error) {
	source, err := ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return Parse(source, path)
}

// ReadFile reads a config file. It never waits for the writer of a pipe. A pipe that can be read at the start
// (-config <(…)) is empty at SIGHUP. If the daemon waited for it, it would not react to signals.
func ReadFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	file.SetReadDeadline(time.Now().Add(readTimeout)) // fails if it is not a pipe: then it needs no deadline
	return ReadAll(file)
}

// ReadAll reads a config file that is open.
func ReadAll(file *os.File) ([]byte, error) {
	source, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	if err == nil && len(source) > maxFileSize {
		err = fmt.Errorf("%s: larger than %d bytes: not a config file", file.Name(), maxFileSize)
	}
	return source, err
}

// Parse is Load for a source in memory. path names it in faults, and its directory may be the
// start of relative file names.
func Parse(source []byte, path string) (*Config, error) {
	r := newReader(path)
	if err := checkNesting(source, path); err != nil {
		return nil, err
	}
	file, diags := hclsyntax.ParseConfig(source, path, hcl.InitialPos)
	r.syntaxFaults(diags)

	cfg := r.readConfig(file.Body.(*hclsyntax.Body))
	if len(r.syntax) > 0 {
		r.compareWhatIsSet(cfg)
		return nil, r.failure()
	}
	r.checkConfig(cfg)
	if len(r.faults) > 0 {
		return nil, r.failure()
	}
	cfg.Source = source
	return cfg, nil
}

// credentialsDirectory returns the start of relative names of secrets: the directory of systemd's
// LoadCredential=, or else the directory of the config file.
func credentialsDirectory(path string) string {
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		return dir
	}
	return filepath.Dir(path)
}

// DefaultSocketPath is where clients connect by default.
const DefaultSocketPath = "/run/redlockd/redlockd.sock"

// defaultTTL is lease.ttl if the file does not set it and max_ttl is not shorter.
const defaultTTL = 10 * time.Second

// defaults returns the config of an empty file, without the nodes, which have no
// default, and without lease.ttl, which depends on max_ttl.
func defaults() *Config {
	return &Config{
		Quorum: Quorum{
			KeyPrefix:   redlock.DefaultPrefix,
			MaxTTL:      30 * time.Second,
			NodeTimeout: 50 * time.Millisecond,
		},
		Socket: Socket{Path: DefaultSocketPath, Mode: 0o660},
		Limits: Limits{
			Connections:        10000,
			ConnectionsPerUser: 1000,
			LeasesPerUser:      10000,
			WaitersPerUser:     10000,
		},
		Log: Log{Level: hclog.Info, Format: logging.Text},
	}
}

// Dev returns the config of redlockd -dev: five embedded nodes a to e, and a socket in the working
// directory. The address of the nodes is the word "embedded", which nothing dials.
func Dev() *Config {
	cfg := defaults()
	cfg.Lease.TTL = defaultTTL
	cfg.Quorum.NodeTimeout = 2 * time.Second // embedded nodes are slow when busy, and never hang
	cfg.Socket = Socket{Path: "./redlockd.sock", Mode: 0o600}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		cfg.Quorum.Nodes = append(cfg.Quorum.Nodes, Node{Name: name, Address: "embedded"})
	}
	return cfg
}
