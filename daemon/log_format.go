package daemon

import (
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
func newFormatLogger(o hclog.LoggerOptions, format LogFormat) *formatLogger {
	o.Mutex = new(sync.Mutex)
	asJSON := o
	asJSON.JSONFormat, asJSON.DisableTime = true, false // whoever reads it wants all in it
	l := &formatLogger{hclog.New(&o), hclog.New(&asJSON), new(atomic.Bool)}
	SetLogFormat(l, format)
	return l
}

// SetLogFormat changes how a logger of NewLogger writes from now on, and all that are
// derived from it. It does nothing to any other.
func SetLogFormat(log hclog.Logger, format LogFormat) {
	if l, ok := log.(*formatLogger); ok {
		l.isJSON.Store(format == LogJSON)
	}
}

// now is the one that writes.
func (l *formatLogger) now() hclog.Logger {
	if l.isJSON.Load() {
		return l.json
	}
	return l.Logger
}

func (l *formatLogger) Log(level hclog.Level, msg string, args ...any) {
	l.now().Log(level, msg, args...)
}
func (l *formatLogger) Trace(msg string, args ...any) { l.now().Trace(msg, args...) }
func (l *formatLogger) Debug(msg string, args ...any) { l.now().Debug(msg, args...) }
func (l *formatLogger) Info(msg string, args ...any)  { l.now().Info(msg, args...) }
func (l *formatLogger) Warn(msg string, args ...any)  { l.now().Warn(msg, args...) }
func (l *formatLogger) Error(msg string, args ...any) { l.now().Error(msg, args...) }

func (l *formatLogger) SetLevel(level hclog.Level) {
	l.Logger.SetLevel(level)
	l.json.SetLevel(level)
}

func (l *formatLogger) With(args ...any) hclog.Logger {
	return &formatLogger{l.Logger.With(args...), l.json.With(args...), l.isJSON}
}

func (l *formatLogger) Named(name string) hclog.Logger {
	return &formatLogger{l.Logger.Named(name), l.json.Named(name), l.isJSON}
}

func (l *formatLogger) ResetNamed(name string) hclog.Logger {
	return &formatLogger{l.Logger.ResetNamed(name), l.json.ResetNamed(name), l.isJSON}
}
