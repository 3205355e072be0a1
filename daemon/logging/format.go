package logging

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// formatLogger is a logger whose format can be changed at any time, with SetLogFormat,
// for all loggers derived from it too: one logger for each format, of which one writes.
type formatLogger struct {
	hclog.Logger // the text; also for all that is the same in both
	json         hclog.Logger
	isJSON       *atomic.Bool
}

// newFormatLogger makes both write to the same place, a line at a time.
func newFormatLogger(o hclog.LoggerOptions, format Format) *formatLogger {
	o.Mutex = new(sync.Mutex)
	asJSON := o
	asJSON.JSONFormat, asJSON.DisableTime = true, false // whoever reads it wants all in it
	l := &formatLogger{hclog.New(&o), hclog.New(&asJSON), new(atomic.Bool)}
	SetFormat(l, format)
	return l
}

// SetLogFormat changes how a logger of NewLogger writes from now on, and all that are
// derived from it. It does nothing to any other.
func SetFormat(log hclog.Logger, format Format) {
	if l, ok := log.(*formatLogger); ok {
		l.isJSON.Store(format == JSON)
	}
}

// write says it in the format that is chosen.
func (l *formatLogger) write(level hclog.Level, msg string, args []any) {
	switch {
	case !l.isJSON.Load():
		l.Logger.Log(level, msg, args...)
	case level >= l.json.GetLevel():
		l.json.Log(level, msg, inWords(args)...)
	}
}

// inWords has durations, signals and the like be in JSON what they are as text: 3s, and
// not 3000000000.
func inWords(args []any) []any {
	words := slices.Clone(args)
	for i, arg := range args {
		_, isError := arg.(error) // whose text is taken anyway
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
	return &formatLogger{l.Logger.With(args...), l.json.With(inWords(args)...), l.isJSON}
}

func (l *formatLogger) Named(name string) hclog.Logger {
	return &formatLogger{l.Logger.Named(name), l.json.Named(name), l.isJSON}
}

func (l *formatLogger) ResetNamed(name string) hclog.Logger {
	return &formatLogger{l.Logger.ResetNamed(name), l.json.ResetNamed(name), l.isJSON}
}
