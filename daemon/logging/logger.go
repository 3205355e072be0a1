package logging

import (
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"
)

// logLevelWords are the levels of log.level and -log-level.
const LevelWords = "trace, debug, info, warn and error"

// LogFormat is how a log line looks.
type Format string

// The formats of NewLogger.
const (
	Text Format = "text"
	JSON Format = "json"
)

// NewLogger returns a logger that writes to w, one line a message, or one JSON
// object. Its level can be changed at any time with SetLevel, and its format with
// SetLogFormat, for all loggers derived from it too. It is safe for concurrent use.
func New(w io.Writer, level hclog.Level, format Format) hclog.Logger {
	lines, ok := w.(*Writer)
	return newFormatLogger(hclog.LoggerOptions{Level: level, Output: w, DisableTime: ok && lines.journal}, format)
}

// ParseLogLevel reads trace, debug, info, warn or error.
func ParseLevel(word string) (hclog.Level, error) {
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
	return hclog.NoLevel, fmt.Errorf("log level %q: wanted one of %s", word, LevelWords)
}
