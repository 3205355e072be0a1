package daemon

import (
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"
)

// logLevelWords are the levels of log.level and -log-level.
const logLevelWords = "trace, debug, info, warn and error"

// NewLogger returns a logger that writes to w, one line a message, or one JSON
// object. Its level can be changed at any time with SetLevel, and its format with
// SetLogFormat, for all loggers derived from it too. It is safe for concurrent use.
func NewLogger(cfg LogConfig, w io.Writer) hclog.Logger {
	lines, ok := w.(*LogWriter)
	return newFormatLogger(hclog.LoggerOptions{Level: cfg.Level, Output: w, DisableTime: ok && lines.journal}, cfg.Format)
}

// ParseLogLevel reads trace, debug, info, warn or error.
func ParseLogLevel(word string) (hclog.Level, error) {
	switch word {
	case "trace":
		return hclog.Trace, nil
	case "debug":
		return hclog.Debug, nil
	case "info":
		return hclog.Info, nil
	case "warn":
		return hclog.Warn, nil
	case "error":
		return hclog.Error, nil
	}
	return hclog.NoLevel, fmt.Errorf("log level %q: wanted one of %s", word, logLevelWords)
}
