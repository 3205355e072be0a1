package logging

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// LevelWords lists the levels of log.level and -log-level, for error texts.
const LevelWords = "trace, debug, info, warn and error"

// Format is how a log line looks.
type Format string

// The formats of New.
const (
	Text Format = "text"
	JSON Format = "json"
)

// New returns a logger that writes to w one line, or one JSON object, for each
// message. SetLevel and [SetFormat] change its level and format at any time, also
// for all loggers derived from it. It is safe for concurrent use.
func New(w io.Writer, level hclog.Level, format Format) hclog.Logger {
	lines, ok := w.(*Writer)
	return newFormatLogger(hclog.LoggerOptions{Level: level, Output: w, DisableTime: ok && lines.journal}, format)
}

// ParseLevel reads trace, debug, info, warn or error.
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

// formatLogger holds one logger for each format and writes with one of them, so
// that the format can change at any time.
type formatLogger struct {
	hclog.Logger // writes text, and has the methods that do not depend on the format
	json         hclog.Logger
	isJSON       *atomic.Bool // shared with all derived loggers
}

// newFormatLogger makes both loggers share a mutex, so that their lines never mix.
func newFormatLogger(o hclog.LoggerOptions, format Format) *formatLogger {
	o.Mutex = new(sync.Mutex)
	asJSON := o
	asJSON.JSONFormat, asJSON.DisableTime = true, false // programs read the time from the object
	l := &formatLogger{hclog.New(&o), hclog.New(&asJSON), new(atomic.Bool)}
	SetFormat(l, format)
	return l
}

// SetFormat changes the format of a logger made by New, and of all loggers
// derived from it. It ignores any other logger.
func SetFormat(log hclog.Logger, format Format) {
	if l, ok := log.(*formatLogger); ok {
		l.isJSON.Store(format == JSON)
	}
}

// write writes the message in the current format.
func (l *formatLogger) write(level hclog.Level, msg string, args []any) {
	switch {
	case !l.isJSON.Load():
		l.Logger.Log(level, msg, args...)
	case level >= l.json.GetLevel():
		l.json.Log(level, msg, textArgs(args)...)
	}
}

// textArgs replaces durations, signals and other fmt.Stringers by their text, so that JSON
// shows 3s and not 3000000000.
func textArgs(args []any) []any {
	words := slices.Clone(args)
	for i, arg := range args {
		_, isError := arg.(error) // hclog writes the text of an error anyway
		if s, is := arg.(fmt.Stringer); is && !isError {
			words[i] = s.String()
		}
	}
	return words
}

func (l *formatLogger) Log(level hclog.Level, msg string, args ...any) { l.write(level, msg, args) }
func (l *formatLogger) Trace(msg string, args ...any)                  { l.write(hclog.Trace, msg, args) }
func (l *formatLogger) Debug(msg string, args ...any)                  { l.write(hclog.Debug, msg, args) }
func (l *formatLogger) Info(msg string, args ...any)                   { l.write(hclog.Info, msg, args) }
func (l *formatLogger) Warn(msg string, args ...any)                   { l.write(hclog.Warn, msg, args) }
func (l *formatLogger) Error(msg string, args ...any)                  { l.write(hclog.Error, msg, args) }

func (l *formatLogger) SetLevel(level hclog.Level) {
	l.Logger.SetLevel(level)
	l.json.SetLevel(level)
}

func (l *formatLogger) With(args ...any) hclog.Logger {
	return &formatLogger{l.Logger.With(args...), l.json.With(textArgs(args)...), l.isJSON}
}

func (l *formatLogger) Named(name string) hclog.Logger {
	return &formatLogger{l.Logger.Named(name), l.json.Named(name), l.isJSON}
}

func (l *formatLogger) ResetNamed(name string) hclog.Logger {
	return &formatLogger{l.Logger.ResetNamed(name), l.json.ResetNamed(name), l.isJSON}
}
